#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "model/architecture.h"
#include "model/rotary_scaling.h"

namespace stagecoach {

/// A Llama, Qwen3, Qwen3-MoE or GPT-OSS model: its shape and the numbers it computes with. Plain
/// data.
struct DecoderConfig {
  Architecture architecture;
  RotaryScaling rotary;
  double norm_epsilon = 1e-6;
  double attention_drop = 0;  ///< probability that an attention weight is dropped in training
  double initializer_range = 0.02;
  /// Weights of a token's experts are a softmax of the chosen logits alone, else of all of them.
  bool normalizes_choice = false;
  /// Of the loss that keeps a token's experts balanced, in training; 0: none.
  double router_loss = 0;
  double gate_alpha = 1;  ///< GPT-OSS: (up + 1) * gate * sigmoid(gate_alpha * gate), cut off
  double gate_limit = 0;  ///< at this; the others have silu(gate) * up
};

/// A configuration with what a person should know of how it came about.
struct ParsedDecoderConfig {
  DecoderConfig config;
  std::vector<std::string> defaulted;  ///< "rope_theta = 10000": fields the text does not give
  std::vector<std::string> ignored;    ///< names of fields that mean nothing here
};

/// Most of router_loss; what is published is 0.9 and less, mostly 0.001.
inline constexpr double kMostRouterLoss = 10;

/// Checks shape, ranges, and what this version can lay out; errors name the field.
Status check_decoder_config(const DecoderConfig& config);

/// What a person who trains such a model should know; empty: nothing.
std::string training_warning(const DecoderConfig& config);

/// Reads the text of a config.json of any family but GPT-2, in both generations of field placement;
/// fields that are given in two places must agree. `source` names the file. Refused by name: what
/// `parse_architecture` refuses, settings that change the result and that this version does not
/// have, wrong types, and everything `check_decoder_config` refuses.
Result<ParsedDecoderConfig> parse_decoder_config(std::string_view text, const std::string& source);

/// A preset of these families, as published. Errors: invalid argument for presets of GPT-2, not
/// found for any other name, with the nearest.
Result<DecoderConfig> decoder_preset(std::string_view name);

/// A config.json that `transformers` of both generations reads; `parse_decoder_config` gives the
/// same configuration back.
Json decoder_config_to_json(const DecoderConfig& config);

/// `json`, a config.json, as it belongs beside weights that are not packed: without
/// quantization_config.
Json beside_plain_weights(const Json& json);

/// The same beside fp32 weights: all other fields as they are, but for the type of the weights,
/// which both generations find under their own name.
Json beside_fp32_weights(Json json);

}  // namespace stagecoach
