#include "model/decoder_config.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "model/architecture_config.h"
#include "model/rotary_config.h"
#include "scheduler/parameter_block.h"

namespace stagecoach {

namespace {

/// A setting of related models that changes the result; this version computes with `neutral` only.
struct NeutralSetting {
  std::string_view name;
  double neutral;  ///< false is 0, true is 1
};

constexpr NeutralSetting kNeutralSettings[] = {
    {"add_cross_attention", 0},         {"embedding_multiplier", 1}, {"is_causal", 1},
    {"is_encoder_decoder", 0},          {"logit_scale", 1},          {"logits_scaling", 1},
    {"partial_rotary_factor", 1},       {"residual_multiplier", 1},  {"rotary_pct", 1},
    {"use_bidirectional_attention", 0},
};
/// Settings of related models that must not be there.
constexpr std::string_view kAbsentSettings[] = {
    "attn_logit_softcapping",  "attention_multiplier", "clip_qkv",
    "final_logit_softcapping", "no_rope_layers",       "attention_chunk_size",
    "attn_temperature_tuning",
};

Status check_settings(ConfigFields& fields) {
  for (const NeutralSetting& setting : kNeutralSettings) {
    const Json* value = fields.find(setting.name);
    if (value == nullptr) continue;
    bool is_neutral = (value->is_number() && value->as_number() == setting.neutral) ||
                      (value->is_bool() && value->as_bool() == (setting.neutral != 0));
    if (is_neutral) continue;
    return fields.refuse(setting.name, value->dump(),
                         fmt::format("{}: this version has nothing else", setting.neutral));
  }
  for (std::string_view name : kAbsentSettings) {
    const Json* value = fields.find(name);
    if (value == nullptr || (value->is_bool() && !value->as_bool())) continue;
    return fields.refuse(name, value->dump(), "none: this version does not have it");
  }
  const Json* pruned = fields.find("pruned_heads");
  if (pruned == nullptr || (pruned->is_object() && pruned->members().empty())) return Status::ok();
  return fields.refuse("pruned_heads", pruned->dump(), "none: this version keeps all heads");
}

/// The stored type says nothing of how to compute, but two that disagree, or one that cannot be
/// loaded, tell of a damaged file.
Status check_stored_type(ConfigFields& fields) {
  constexpr std::string_view kTypes[] = {"float32", "bfloat16", "float16"};
  std::string first;
  for (std::string_view name : {"dtype", "torch_dtype"}) {
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<std::string> type, fields.find_text(name));
    if (!type) continue;
    std::string plain = type->starts_with("torch.") ? type->substr(6) : *type;
    if (std::find(std::begin(kTypes), std::end(kTypes), plain) == std::end(kTypes)) {
      return fields.refuse(name, '"' + *type + '"', "\"float32\", \"bfloat16\" or \"float16\"");
    }
    if (!first.empty() && first != plain) {
      return fields.refuse(name, '"' + *type + '"', fmt::format("\"{}\" as dtype says", first));
    }
    first = plain;
  }
  return Status::ok();
}

/// How tokens choose experts, and by how much a loss keeps them balanced: as in transformers, not
/// at all unless router logits are put out.
Status read_routing(ConfigFields& fields, DecoderConfig& config) {
  // GPT-OSS knows nothing else.
  bool is_gpt_oss = config.architecture.family == ModelFamily::kGptOss;
  STAGECOACH_RETURN_IF_ERROR(
      is_gpt_oss ? Status::ok()
                 : fields.read_bool_or("norm_topk_prob", false, config.normalizes_choice));
  if (is_gpt_oss) config.normalizes_choice = true;
  bool balances = false;
  if (fields.find("output_router_logits") != nullptr) {
    STAGECOACH_RETURN_IF_ERROR(fields.read_bool_or("output_router_logits", false, balances));
  }
  fields.find("router_aux_loss_coef");
  if (!balances) return Status::ok();
  constexpr double kTransformersDefault = 0.001;
  STAGECOACH_RETURN_IF_ERROR(
      fields.read_number_or("router_aux_loss_coef", kTransformersDefault, config.router_loss));
  if (config.router_loss >= 0 && config.router_loss <= kMostRouterLoss) return Status::ok();
  return fields.refuse("router_aux_loss_coef", fmt::format("{}", config.router_loss),
                       fmt::format("0 to {}", kMostRouterLoss));
}

/// The gated activation of GPT-OSS's experts, as it was published.
constexpr double kGateAlpha = 1.702;
constexpr double kGateLimit = 7;

Status read_gate(ConfigFields& fields, DecoderConfig& config) {
  STAGECOACH_RETURN_IF_ERROR(fields.read_number_or("swiglu_alpha", kGateAlpha, config.gate_alpha));
  STAGECOACH_RETURN_IF_ERROR(fields.read_number_or("swiglu_limit", kGateLimit, config.gate_limit));
  if (config.gate_limit > 0) return Status::ok();
  return fields.refuse("swiglu_limit", fmt::format("{}", config.gate_limit), "above 0");
}

/// GPT-OSS has defaults of its own for how positions turn heads; a file that leaves them out is
/// refused rather than guessed at.
Status check_gives_rotary(ConfigFields& fields) {
  const Json* theta = fields.find("rope_theta");
  const Json* table = nullptr;
  for (const char* name : {"rope_parameters", "rope_scaling"}) {
    const Json* found = fields.find(name);
    if (found == nullptr || !found->is_object()) continue;
    table = found;
    if (theta == nullptr) theta = found->find("rope_theta");
  }
  if (table == nullptr) {
    return fields.refuse("rope_scaling", "missing", "a table, or rope_parameters");
  }
  return theta != nullptr ? Status::ok() : fields.refuse("rope_theta", "missing", "a number");
}

Status read_numbers(ConfigFields& fields, DecoderConfig& config) {
  bool is_gpt_oss = config.architecture.family == ModelFamily::kGptOss;
  if (is_gpt_oss) {
    STAGECOACH_RETURN_IF_ERROR(check_gives_rotary(fields));
    STAGECOACH_RETURN_IF_ERROR(read_gate(fields, config));
  }
  STAGECOACH_RETURN_IF_ERROR(
      fields.read_number_or("rms_norm_eps", is_gpt_oss ? 1e-5 : 1e-6, config.norm_epsilon));
  STAGECOACH_RETURN_IF_ERROR(fields.read_number_or("attention_dropout", 0, config.attention_drop));
  STAGECOACH_RETURN_IF_ERROR(
      fields.read_number_or("initializer_range", 0.02, config.initializer_range));
  STAGECOACH_ASSIGN_OR_RETURN(config.rotary, read_rotary(fields, config.architecture.positions));
  const Json* mlp_bias = fields.find("mlp_bias");  // Llama's own
  bool is_other = config.architecture.family != ModelFamily::kLlama;
  if (!is_other || mlp_bias == nullptr || (mlp_bias->is_bool() && !mlp_bias->as_bool()))
    return Status::ok();
  return fields.refuse("mlp_bias", mlp_bias->dump(), "false for this model_type");
}

/// Matrices of one product lie side by side in their block, without gaps.
Status check_gapless(std::string_view what, int64_t elements) {
  if (elements % ParameterBlock::kAlignmentElements == 0) return Status::ok();
  return invalid_argument(
      fmt::format("{} is {}, expected a multiple of {}: this version keeps the "
                  "tensors of one product side by side",
                  what, elements, ParameterBlock::kAlignmentElements));
}

/// Of presets of a family.
DecoderConfig published_numbers(const Architecture& architecture) {
  DecoderConfig config;
  config.architecture = architecture;
  if (architecture.norms_heads()) {
    config.rotary.theta = 1e6;
    config.normalizes_choice = architecture.has_experts();
    return config;
  }
  config.norm_epsilon = 1e-5;
  if (architecture.family == ModelFamily::kGptOss) {
    config.normalizes_choice = true;
    config.gate_alpha = kGateAlpha;
    config.gate_limit = kGateLimit;
    config.rotary.kind = RotaryScaling::Kind::kYarn;
    config.rotary.theta = 150000;
    config.rotary.factor = 32;
    config.rotary.original_positions = 4096;
    config.rotary.truncates = false;
    config.rotary.magnitude = 0.1 * std::log(32.0) + 1;
    return config;
  }
  config.rotary.kind = RotaryScaling::Kind::kLlama3;
  config.rotary.theta = 5e5;
  config.rotary.factor = 8;
  config.rotary.original_positions = 8192;
  return config;
}

Json rotary_to_json(const RotaryScaling& rotary) {
  Json json = Json::object();
  json["rope_type"] = rotary_kind_name(rotary.kind);
  if (rotary.kind == RotaryScaling::Kind::kNone) return json;
  json["factor"] = rotary.factor;
  if (rotary.kind == RotaryScaling::Kind::kLinear) return json;
  json["original_max_position_embeddings"] = static_cast<int64_t>(rotary.original_positions);
  if (rotary.kind == RotaryScaling::Kind::kLlama3) {
    json["low_freq_factor"] = rotary.low_frequency_factor;
    json["high_freq_factor"] = rotary.high_frequency_factor;
    return json;
  }
  json["beta_fast"] = rotary.beta_fast;
  json["beta_slow"] = rotary.beta_slow;
  json["truncate"] = rotary.truncates;
  json["attention_factor"] = rotary.magnitude;
  return json;
}

/// Of transformers.
std::string_view class_name(ModelFamily family) {
  if (family == ModelFamily::kGptOss) return "GptOssForCausalLM";
  if (family == ModelFamily::kQwen3Moe) return "Qwen3MoeForCausalLM";
  return family == ModelFamily::kQwen3 ? "Qwen3ForCausalLM" : "LlamaForCausalLM";
}

void add_mlp_fields(const DecoderConfig& config, Json& json) {
  const Architecture& a = config.architecture;
  bool is_qwen = a.family == ModelFamily::kQwen3Moe;
  json[is_qwen ? "moe_intermediate_size" : "intermediate_size"] = a.intermediate;
  if (!a.has_experts()) return;
  json[is_qwen ? "num_experts" : "num_local_experts"] = a.experts;
  json["num_experts_per_tok"] = a.experts_per_token;
  if (config.router_loss > 0) {
    json["output_router_logits"] = true;
    json["router_aux_loss_coef"] = config.router_loss;
  }
  if (!is_qwen) {
    json["swiglu_alpha"] = config.gate_alpha;
    json["swiglu_limit"] = config.gate_limit;
    return;
  }
  json["norm_topk_prob"] = config.normalizes_choice;
  json["decoder_sparse_step"] = int64_t{1};
  json["mlp_only_layers"] = Json(Json::Array{});
}

/// One window for all layers that have one.
void add_window_fields(const Architecture& a, Json& json) {
  auto widest = std::max_element(a.windows.begin(), a.windows.end());
  if (widest == a.windows.end() || *widest == 0) return;
  Json::Array types;
  for (int64_t window : a.windows) {
    types.emplace_back(window > 0 ? "sliding_attention" : "full_attention");
  }
  json["layer_types"] = Json(std::move(types));
  json["sliding_window"] = *widest;
  if (a.family != ModelFamily::kGptOss) json["use_sliding_window"] = true;
}

}  // namespace

Status check_decoder_config(const DecoderConfig& config) {
  const Architecture& a = config.architecture;
  if (a.family == ModelFamily::kGpt2) return invalid_argument("gpt2 is no model of this kind");
  STAGECOACH_RETURN_IF_ERROR(check_architecture(a));
  if (!(config.norm_epsilon >= 0 && config.norm_epsilon < 1)) {
    return invalid_argument(
        fmt::format("rms_norm_eps is {}, expected at least 0 and below 1", config.norm_epsilon));
  }
  if (!(config.attention_drop >= 0 && config.attention_drop < 1)) {
    return invalid_argument(fmt::format("attention_dropout is {}, expected at least 0 and below 1",
                                        config.attention_drop));
  }
  if (!(config.initializer_range >= 0 && config.initializer_range < 100)) {
    return invalid_argument(
        fmt::format("initializer_range is {}, expected 0 to 100", config.initializer_range));
  }
  if (a.head_dim % 2 != 0) {
    return invalid_argument(fmt::format(
        "head_dim is {}, expected an even number: its halves turn together", a.head_dim));
  }
  int64_t keys = a.kv_heads * a.head_dim;
  STAGECOACH_RETURN_IF_ERROR(
      check_gapless("num_key_value_heads x head_dim x hidden_size", keys * a.hidden));
  // Those of experts are one tensor.
  if (!a.has_experts()) {
    STAGECOACH_RETURN_IF_ERROR(
        check_gapless("intermediate_size x hidden_size", a.intermediate * a.hidden));
  }
  if (a.attention_bias) {
    STAGECOACH_RETURN_IF_ERROR(
        check_gapless("num_key_value_heads x head_dim, with attention_bias,", keys));
  }
  if (!a.mlp_bias || a.has_experts()) return Status::ok();
  return check_gapless("intermediate_size, with mlp_bias,", a.intermediate);
}

std::string training_warning(const DecoderConfig& config) {
  const Architecture& a = config.architecture;
  if (!a.has_experts() || a.experts_per_token > 1 || !config.normalizes_choice) return "";
  if (config.router_loss > 0) return "";
  return "num_experts_per_tok is 1 and norm_topk_prob is true: an expert's weight is always 1, so "
         "the routers get no gradient and stay as they are";
}

Result<ParsedDecoderConfig> parse_decoder_config(std::string_view text, const std::string& source) {
  STAGECOACH_ASSIGN_OR_RETURN(Json json, parse_config_json(text, source));
  ConfigFields fields(json, source);
  STAGECOACH_ASSIGN_OR_RETURN(ModelFamily family, read_model_family(fields));
  if (family == ModelFamily::kGpt2) {
    return fields.refuse("model_type", "\"gpt2\"", "another: GPT-2 has a reader of its own");
  }
  ParsedDecoderConfig parsed;
  STAGECOACH_ASSIGN_OR_RETURN(parsed.config.architecture, read_architecture(fields, family));
  STAGECOACH_RETURN_IF_ERROR(read_numbers(fields, parsed.config));
  if (parsed.config.architecture.has_experts()) {
    STAGECOACH_RETURN_IF_ERROR(read_routing(fields, parsed.config));
  }
  STAGECOACH_RETURN_IF_ERROR(check_settings(fields));
  STAGECOACH_RETURN_IF_ERROR(check_stored_type(fields));
  if (Status status = check_decoder_config(parsed.config); !status.is_ok()) {
    return status.with_context(source);
  }
  parsed.defaulted = fields.defaulted();
  for (std::string& name : fields.unread()) {
    if (!is_harmless_field(name)) parsed.ignored.push_back(std::move(name));
  }
  return parsed;
}

Result<DecoderConfig> decoder_preset(std::string_view name) {
  STAGECOACH_ASSIGN_OR_RETURN(Architecture architecture, architecture_preset(name));
  if (architecture.family != ModelFamily::kGpt2) return published_numbers(architecture);
  return invalid_argument(fmt::format("preset '{}' is a GPT-2", name));
}

Json decoder_config_to_json(const DecoderConfig& config) {
  const Architecture& a = config.architecture;
  bool is_llama = a.family == ModelFamily::kLlama;
  Json json = Json::object();
  json["architectures"] = Json(Json::Array{Json(std::string(class_name(a.family)))});
  json["model_type"] = model_family_name(a.family);
  json["vocab_size"] = a.vocabulary;
  json["max_position_embeddings"] = a.positions;
  json["hidden_size"] = a.hidden;
  add_mlp_fields(config, json);
  add_window_fields(a, json);
  json["num_hidden_layers"] = a.layers;
  json["num_attention_heads"] = a.heads;
  json["num_key_value_heads"] = a.kv_heads;
  json["head_dim"] = a.head_dim;
  json["hidden_act"] = "silu";
  json["rms_norm_eps"] = config.norm_epsilon;
  json["attention_bias"] = a.attention_bias;
  if (is_llama) json["mlp_bias"] = a.mlp_bias;
  json["attention_dropout"] = config.attention_drop;
  json["initializer_range"] = config.initializer_range;
  json["tie_word_embeddings"] = a.ties_head;
  json["rope_theta"] = config.rotary.theta;
  bool is_scaled = config.rotary.kind != RotaryScaling::Kind::kNone;
  json["rope_scaling"] = is_scaled ? rotary_to_json(config.rotary) : Json();
  json["use_cache"] = true;
  return json;
}

Json beside_plain_weights(const Json& json) {
  Json plain = Json::object();
  for (const auto& [key, value] : json.members()) {
    if (key != "quantization_config") plain[key] = value;
  }
  return plain;
}

Json beside_fp32_weights(Json json) {
  json = beside_plain_weights(json);
  json["dtype"] = "float32";
  json["torch_dtype"] = "float32";
  return json;
}

}  // namespace stagecoach
