#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/status.h"

namespace stagecoach {

/// Shape and settings of a GPT-2 model; defaults are those of `transformers`.
struct Gpt2Config {
  int64_t vocab_size = 50257;
  int64_t n_positions = 1024;
  int64_t n_embd = 768;
  int64_t n_layer = 12;
  int64_t n_head = 12;
  int64_t n_inner = 3072;
  double layer_norm_epsilon = 1e-5;
  double resid_pdrop = 0.1;
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double initializer_range = 0.02;
};

/// A configuration with what a person should know of how it came about.
struct ParsedGpt2Config {
  Gpt2Config config;
  std::vector<std::string> defaulted;  ///< "attn_pdrop = 0.1": fields the text does not give
  std::vector<std::string> ignored;    ///< names of unknown fields
};

/// Checks ranges and that heads divide the width; errors name field and value.
Status check_gpt2_config(const Gpt2Config& config);

/// Reads the text of a config.json. `source` names the file in errors. Refused by name: another
/// model_type, settings that change the result and that this version does not have, wrong types,
/// and everything `check_gpt2_config` refuses.
Result<ParsedGpt2Config> parse_gpt2_config(std::string_view text, const std::string& source);

/// "gpt2" or "gpt2-medium". Errors: unimplemented for a preset of another family, not found for any
/// other name, with the nearest one.
Result<Gpt2Config> gpt2_preset(std::string_view name);

/// A config.json that `transformers` reads; `parse_gpt2_config` gives the same configuration back.
Json gpt2_config_to_json(const Gpt2Config& config);

}  // namespace stagecoach
