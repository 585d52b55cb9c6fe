#include "model/architecture.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "core/suggest.h"
#include "model/config_fields.h"

namespace stagecoach {

namespace {

/// A published config.json, as far as shapes go (read from the models' own repositories).
struct Preset {
  std::string_view name;
  ModelFamily family;
  int64_t vocabulary, positions, hidden, layers, heads, kv_heads, head_dim, intermediate;
  int64_t experts = 0, experts_per_token = 0;
  bool ties_head = false;
};

constexpr auto kLlama = ModelFamily::kLlama;
constexpr auto kQwen3 = ModelFamily::kQwen3;
constexpr std::array<Preset, 8> kPresets = {{
    {"llama3.1-8b", kLlama, 128256, 131072, 4096, 32, 32, 8, 128, 14336},
    {"qwen3-1.7b", kQwen3, 151936, 40960, 2048, 28, 16, 8, 128, 6144, 0, 0, true},
    {"qwen3-4b", kQwen3, 151936, 40960, 2560, 36, 32, 8, 128, 9728, 0, 0, true},
    {"qwen3-8b", kQwen3, 151936, 40960, 4096, 36, 32, 8, 128, 12288},
    {"qwen3-14b", kQwen3, 151936, 40960, 5120, 40, 40, 8, 128, 17408},
    {"qwen3-32b", kQwen3, 151936, 40960, 5120, 64, 64, 8, 128, 25600},
    {"qwen3-235b-a22b", ModelFamily::kQwen3Moe, 151936, 40960, 4096, 94, 64, 4, 128, 1536, 128, 8},
    {"gpt-oss-20b", ModelFamily::kGptOss, 201088, 131072, 2880, 24, 64, 8, 64, 2880, 32, 4},
}};
constexpr std::string_view kGpt2Presets[] = {"gpt2", "gpt2-medium"};
/// Of GPT-OSS, in its even layers.
constexpr int64_t kGptOssWindow = 128;

Architecture architecture_of(const Preset& preset) {
  Architecture architecture;
  architecture.family = preset.family;
  architecture.vocabulary = preset.vocabulary;
  architecture.positions = preset.positions;
  architecture.hidden = preset.hidden;
  architecture.layers = preset.layers;
  architecture.heads = preset.heads;
  architecture.kv_heads = preset.kv_heads;
  architecture.head_dim = preset.head_dim;
  architecture.intermediate = preset.intermediate;
  architecture.experts = preset.experts;
  architecture.experts_per_token = preset.experts_per_token;
  architecture.ties_head = preset.ties_head;
  if (preset.family != ModelFamily::kGptOss) return architecture;
  architecture.attention_bias = architecture.mlp_bias = true;
  for (int64_t layer = 0; layer < preset.layers; ++layer) {
    architecture.windows.push_back(layer % 2 == 0 ? kGptOssWindow : 0);
  }
  return architecture;
}

Status refuse(std::string_view field, int64_t value, const std::string& expected) {
  return invalid_argument(fmt::format("{} is {}, expected {}", field, value, expected));
}

Status check_range(std::string_view field, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return Status::ok();
  return refuse(field, value, fmt::format("1 to {}", most));
}

}  // namespace

std::string_view model_family_name(ModelFamily family) {
  switch (family) {
    case ModelFamily::kGpt2:
      return "gpt2";
    case ModelFamily::kLlama:
      return "llama";
    case ModelFamily::kQwen3:
      return "qwen3";
    case ModelFamily::kQwen3Moe:
      return "qwen3_moe";
    case ModelFamily::kGptOss:
      return "gpt_oss";
  }
  return "";
}

int64_t Architecture::experts_in_use(int64_t tokens) const {
  return std::min(experts, tokens * experts_per_token);
}

Status check_architecture(const Architecture& architecture) {
  const Architecture& a = architecture;
  const std::pair<std::string_view, int64_t> sizes[] = {{"vocab_size", a.vocabulary},
                                                        {"max_position_embeddings", a.positions},
                                                        {"hidden_size", a.hidden},
                                                        {"num_attention_heads", a.heads},
                                                        {"num_key_value_heads", a.kv_heads},
                                                        {"head_dim", a.head_dim},
                                                        {"intermediate_size", a.intermediate}};
  for (const auto& [field, value] : sizes) {
    STAGECOACH_RETURN_IF_ERROR(check_range(field, value, kMaxDimension));
  }
  STAGECOACH_RETURN_IF_ERROR(check_range("num_hidden_layers", a.layers, kMaxLayers));
  if (a.heads % a.kv_heads != 0) {
    return refuse("num_attention_heads", a.heads,
                  fmt::format("a multiple of num_key_value_heads, {}", a.kv_heads));
  }
  if (a.qkv_columns() > kMaxDimension) {
    return refuse("head_dim", a.head_dim,
                  fmt::format("queries, keys and values of at most {} columns", kMaxDimension));
  }
  for (int64_t window : a.windows) {
    if (window < 0) return refuse("sliding_window", window, "at least 1");
  }
  if (!a.has_experts()) return Status::ok();
  constexpr int64_t kMostExperts = 4096;
  STAGECOACH_RETURN_IF_ERROR(check_range("num_experts", a.experts, kMostExperts));
  return check_range("num_experts_per_tok", a.experts_per_token, a.experts);
}

Architecture architecture_of(const Gpt2Config& config) {
  Architecture architecture;
  architecture.family = ModelFamily::kGpt2;
  architecture.vocabulary = config.vocab_size;
  architecture.positions = config.n_positions;
  architecture.hidden = config.n_embd;
  architecture.layers = config.n_layer;
  architecture.heads = architecture.kv_heads = config.n_head;
  architecture.head_dim = config.n_embd / config.n_head;
  architecture.intermediate = config.n_inner;
  architecture.ties_head = architecture.attention_bias = architecture.mlp_bias = true;
  return architecture;
}

bool is_model_preset(std::string_view name) {
  return std::find(std::begin(kGpt2Presets), std::end(kGpt2Presets), name) !=
             std::end(kGpt2Presets) ||
         std::any_of(kPresets.begin(), kPresets.end(),
                     [&](const Preset& preset) { return name == preset.name; });
}

Result<Architecture> architecture_preset(std::string_view name) {
  for (const Preset& preset : kPresets) {
    if (name == preset.name) return architecture_of(preset);
  }
  if (is_model_preset(name)) {
    STAGECOACH_ASSIGN_OR_RETURN(Gpt2Config config, gpt2_preset(name));
    return architecture_of(config);
  }
  std::vector<std::string> names(std::begin(kGpt2Presets), std::end(kGpt2Presets));
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  std::string nearest = nearest_name(name, names);
  return not_found(fmt::format("there is no preset '{}'{}", name,
                               nearest.empty() ? "" : "; did you mean '" + nearest + "'?"));
}

}  // namespace stagecoach
