#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "model/architecture.h"
#include "model/decoder.h"
#include "model/decoder_config.h"
#include "model/gpt2_config.h"
#include "model/network_head.h"
#include "scheduler/network.h"

namespace stagecoach {

/// A model that this version computes: configuration of one family or another.
using ComputedModel = std::variant<Gpt2Config, DecoderConfig>;

/// A configuration with what a person should know of how it came about.
struct ParsedModel {
  ComputedModel model;
  Json json;  ///< the config.json that belongs beside fp32 weights of this model
  std::vector<std::string> defaulted;
  std::vector<std::string> ignored;
};

/// Reads the text of a config.json of any family; errors as `parse_gpt2_config` and
/// `parse_decoder_config` have them.
Result<ParsedModel> parse_model(std::string_view text, const std::string& source);

/// A preset. Errors: not found for any other name, with the nearest.
Result<ParsedModel> model_preset(std::string_view name);

/// The shape of a model.
Architecture architecture_of(const ComputedModel& model);

/// Its network, for sequences of up to `sequence` tokens, with adapters where `lora` says so.
/// With `has_documents` it takes RowInput::kDocumentStarts: a row sees none but its own document,
/// in which learned positions begin anew (RowInput::kPositions; those that heads turn by count on,
/// because only their distance matters).
Result<Network> make_network(const ComputedModel& model, NetworkHead head, DType dtype,
                             int64_t sequence, const LoraOptions& lora = {},
                             bool has_documents = false);

}  // namespace stagecoach
