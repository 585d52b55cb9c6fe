#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "model/architecture.h"
#include "model/computed_model.h"

namespace stagecoach {

/// What a MODEL argument stands for.
struct ModelSource {
  ComputedModel model;
  Json config_json;                    ///< the config.json that belongs beside its fp32 weights
  std::string name;                    ///< as given
  std::string weights_folder;          ///< as `WeightFolder` reads; empty when there are no weights
  std::vector<std::string> defaulted;  ///< fields config.json does not give, with their values
  std::vector<std::string> ignored;    ///< fields of config.json that mean nothing here

  Architecture architecture() const { return architecture_of(model); }
};

/// Resolves MODEL: a Hugging Face folder (config.json, and safetensors files if it has weights), a
/// config.json (shape only), or a preset (shape only). A folder that exists goes before a preset.
/// Errors: not found for what does not exist, with the download command for names like org/model;
/// those of `WeightFolder::open` (headers are read); unimplemented for weights that are no
/// safetensors files and presets of later versions; those of `parse_model`.
Result<ModelSource> resolve_model(const std::string& model);

/// A MODEL argument as far as its shape goes: what can be planned and simulated.
struct ShapeSource {
  Architecture architecture;
  std::optional<ComputedModel> model;  ///< of models that this version computes too
  std::string refusal;                 ///< why not, of those that it does not
  std::string name;                    ///< as given
  std::vector<std::string> defaulted;  ///< fields config.json does not give, with their values
  std::vector<std::string> ignored;    ///< its fields that mean nothing here, of computed models
};

/// Resolves MODEL as resolve_model does, but needs no weights. Errors: not found for what does not
/// exist; those of `parse_architecture` and, where there are weights, of `WeightFolder::open`.
Result<ShapeSource> resolve_shape(const std::string& model);

/// Ok when the source has weights; else a failed precondition that says how to start without.
Status check_has_weights(const ModelSource& source);

}  // namespace stagecoach
