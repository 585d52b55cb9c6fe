#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "model/gpt2_config.h"

namespace stagecoach {

/// Which layers a decoder-only transformer is made of.
enum class ModelFamily : uint8_t {
  kGpt2,      ///< LayerNorm, learned positions, GELU, biases, tied head
  kLlama,     ///< RMSNorm, rotary positions, gated SiLU
  kQwen3,     ///< as Llama, with norms of query and key heads
  kQwen3Moe,  ///< as Qwen3, with experts
  kGptOss     ///< experts with biases, attention sinks, sliding windows in every other layer
};

/// The name in config.json: "gpt2", "llama", "qwen3", "qwen3_moe", "gpt_oss".
std::string_view model_family_name(ModelFamily family);

/// What planning needs of a decoder-only transformer: its shape, no numbers. Plain data.
struct Architecture {
  ModelFamily family = ModelFamily::kLlama;
  int64_t vocabulary = 0;
  int64_t positions = 0;  ///< longest sequence the model is made for
  int64_t hidden = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate = 0;       ///< of the MLP, or of one expert
  int64_t experts = 0;            ///< 0: one MLP
  int64_t experts_per_token = 0;  ///< that each token goes through
  /// Per layer: how many keys a query sees at most; 0: all before it. Empty: 0 in all layers.
  std::vector<int64_t> windows;
  bool ties_head = false;       ///< the head is the embedding
  bool attention_bias = false;  ///< of query, key, value and output projections
  bool mlp_bias = false;

  bool has_experts() const { return experts > 0; }
  bool norms_heads() const {
    return family == ModelFamily::kQwen3 || family == ModelFamily::kQwen3Moe;
  }
  int64_t qkv_columns() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t window(int64_t layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)];
  }
  /// Experts of a layer that `tokens` can reach: all, unless there are fewer choices than experts.
  int64_t experts_in_use(int64_t tokens) const;
};

/// Checks ranges and that sizes fit together; errors name the field as config.json does.
Status check_architecture(const Architecture& architecture);

/// The same shape; dropout is no part of it.
Architecture architecture_of(const Gpt2Config& config);

/// The shape of a preset of the command. Errors: not found for any other name, with the nearest.
Result<Architecture> architecture_preset(std::string_view name);
/// Whether `name` is such a preset.
bool is_model_preset(std::string_view name);

}  // namespace stagecoach
