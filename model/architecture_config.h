#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "model/architecture.h"
#include "model/config_fields.h"

namespace stagecoach {

/// A shape with what a person should know of how it came about.
struct ParsedArchitecture {
  Architecture architecture;
  std::vector<std::string> defaulted;  ///< "head_dim = 128": fields the text does not give
};

/// Reads the shape from the text of a config.json of GPT-2, Llama 3.x, Qwen3, Qwen3-MoE or GPT-OSS,
/// as transformers of before and after version 5 write it. Fields that change no shape are not
/// looked at, apart from those that say the weights are packed otherwise. `source` names the file.
/// Refused with file, field, value and what is expected: another model_type (unimplemented),
/// missing sizes, wrong types, shapes this version does not know, and everything
/// `check_architecture` and, for GPT-2, `parse_gpt2_config` refuse.
Result<ParsedArchitecture> parse_architecture(std::string_view text, const std::string& source);

/// The object that `text` holds; errors name `source`.
Result<Json> parse_config_json(std::string_view text, const std::string& source);

/// Which family `model_type` names; unimplemented for one this version does not know.
Result<ModelFamily> read_model_family(ConfigFields& fields);

/// The shape alone, of a family other than GPT-2; errors as `parse_architecture` has them.
Result<Architecture> read_architecture(ConfigFields& fields, ModelFamily family);

}  // namespace stagecoach
