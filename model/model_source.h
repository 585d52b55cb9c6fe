#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "model/architecture.h"
#include "model/computed_model.h"
#include "model/lora_options.h"

namespace stagecoach {

/// What a MODEL argument stands for.
struct ModelSource {
  ComputedModel model;
  Json config_json;                    ///< the config.json that belongs beside its fp32 weights
  std::string name;                    ///< as given
  LoraOptions lora;                    ///< of an adapter's folder; off: of the base alone
  std::string adapter_folder;          ///< where its matrices are; empty: they begin anew
  std::string base_path;               ///< the base's folder, where there are adapters
  std::string weights_folder;          ///< as `WeightFolder` reads; empty when there are no weights
  std::vector<std::string> defaulted;  ///< fields config.json does not give, with their values
  std::vector<std::string> ignored;    ///< fields of config.json that mean nothing here
  std::vector<std::string> notes;      ///< of an adapter: what a person should know

  Architecture architecture() const { return architecture_of(model); }
};

/// Resolves MODEL: a Hugging Face folder (config.json, and safetensors files if it has weights), a
/// config.json (shape only), a preset (shape only), or an adapter's folder as PEFT has it, whose
/// base is a Hugging Face folder: named from here or from the adapter's folder. A folder that
/// exists goes before a preset. Errors: not found for what does not exist, with the download
/// command for names like org/model; those of `WeightFolder::open` (headers are read);
/// unimplemented for weights that are no safetensors files and presets of later versions; those of
/// `parse_model`.
Result<ModelSource> resolve_model(const std::string& model);

/// A MODEL argument as far as its shape goes: what can be planned and simulated.
struct ShapeSource {
  Architecture architecture;
  std::optional<ComputedModel> model;  ///< of models that this version computes too
  std::string refusal;                 ///< why not, of those that it does not
  LoraOptions lora;                    ///< of an adapter's folder; off: full training
  std::string adapter_folder;          ///< empty: none
  std::string name;                    ///< as given
  std::string weights_folder;          ///< as `WeightFolder` reads; empty when there are no weights
  std::vector<std::string> defaulted;  ///< fields config.json does not give, with their values
  std::vector<std::string> ignored;    ///< its fields that mean nothing here, of computed models
  std::vector<std::string> notes;      ///< of an adapter: what a person should know
};

/// Resolves MODEL as resolve_model does, but needs no weights unless it is an adapter's folder.
/// Errors: not found for what does not exist; those of `parse_architecture` and, where there are
/// weights, of `WeightFolder::open`; of an adapter's folder those of `resolve_model`.
Result<ShapeSource> resolve_shape(const std::string& model);

/// Adds the adapter in `folder` to a source without one. Refused: one for matrices of another
/// orientation (fan_in_fan_out). Errors: those of `read_adapter_config`.
Status add_adapter(const std::string& folder, ModelSource& source);

/// sha256 of what tells a base from others without reading all of it: its config.json, and of each
/// tensor name, type, shape and first bytes.
Result<std::string> base_sha256(const ModelSource& source);

/// Whether matrices of the source's files are [in, out].
bool is_transposed(const ModelSource& source);

/// Ok when the source has weights; else a failed precondition that says how to start without, which
/// adapters cannot.
Status check_has_weights(const ModelSource& source, bool has_adapters = false);

}  // namespace stagecoach
