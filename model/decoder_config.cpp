#include "model/decoder_config.h"

#include <algorithm>
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

/// How tokens choose experts, and that no loss keeps them balanced.
Status read_routing(ConfigFields& fields, DecoderConfig& config) {
  STAGECOACH_RETURN_IF_ERROR(
      fields.read_bool_or("norm_topk_prob", false, config.normalizes_choice));
  bool balances = false;
  if (fields.find("output_router_logits") != nullptr) {
    STAGECOACH_RETURN_IF_ERROR(fields.read_bool_or("output_router_logits", false, balances));
  }
  const Json* coefficient = fields.find("router_aux_loss_coef");
  bool is_none =
      coefficient != nullptr && coefficient->is_number() && coefficient->as_number() == 0;
  if (!balances || is_none) return Status::ok();
  return fields.refuse("output_router_logits", "true",
                       "false, or a router_aux_loss_coef of 0: this version adds no loss that "
                       "balances experts");
}

Status read_numbers(ConfigFields& fields, DecoderConfig& config) {
  STAGECOACH_RETURN_IF_ERROR(fields.read_number_or("rms_norm_eps", 1e-6, config.norm_epsilon));
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

}  // namespace

bool is_computed_decoder(ModelFamily family) {
  return family == ModelFamily::kLlama || family == ModelFamily::kQwen3 ||
         family == ModelFamily::kQwen3Moe;
}

Status check_decoder_config(const DecoderConfig& config) {
  const Architecture& a = config.architecture;
  if (!is_computed_decoder(a.family)) {
    return unimplemented(fmt::format("this version plans and simulates {} but does not compute it",
                                     model_family_name(a.family)));
  }
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
  if (!a.mlp_bias) return Status::ok();
  return check_gapless("intermediate_size, with mlp_bias,", a.intermediate);
}

std::string training_warning(const DecoderConfig& config) {
  const Architecture& a = config.architecture;
  if (!a.has_experts() || a.experts_per_token > 1 || !config.normalizes_choice) return "";
  return "num_experts_per_tok is 1 and norm_topk_prob is true: an expert's weight is always 1, so "
         "the routers get no gradient and stay as they are";
}

Result<ParsedDecoderConfig> parse_decoder_config(std::string_view text, const std::string& source) {
  STAGECOACH_ASSIGN_OR_RETURN(Json json, parse_config_json(text, source));
  ConfigFields fields(json, source);
  STAGECOACH_ASSIGN_OR_RETURN(ModelFamily family, read_model_family(fields));
  if (!is_computed_decoder(family)) {
    return unimplemented(
        fmt::format("{}: model_type is \"{}\"; this version plans and simulates it but does not "
                    "compute it; it computes gpt2, llama, qwen3 and qwen3_moe",
                    source, model_family_name(family)));
  }
  ParsedDecoderConfig parsed;
  STAGECOACH_ASSIGN_OR_RETURN(parsed.config.architecture, read_architecture(fields, family));
  STAGECOACH_RETURN_IF_ERROR(read_numbers(fields, parsed.config));
  if (family == ModelFamily::kQwen3Moe) {
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
  if (is_computed_decoder(architecture.family)) return published_numbers(architecture);
  return unimplemented(fmt::format(
      "preset '{}': this version plans and simulates it but does not compute it", name));
}

Json decoder_config_to_json(const DecoderConfig& config) {
  const Architecture& a = config.architecture;
  bool is_llama = a.family == ModelFamily::kLlama;
  Json json = Json::object();
  json["architectures"] = Json(Json::Array{Json(is_llama          ? "LlamaForCausalLM"
                                                : a.has_experts() ? "Qwen3MoeForCausalLM"
                                                                  : "Qwen3ForCausalLM")});
  json["model_type"] = model_family_name(a.family);
  json["vocab_size"] = a.vocabulary;
  json["max_position_embeddings"] = a.positions;
  json["hidden_size"] = a.hidden;
  if (a.has_experts()) {
    json["moe_intermediate_size"] = a.intermediate;
    json["num_experts"] = a.experts;
    json["num_experts_per_tok"] = a.experts_per_token;
    json["norm_topk_prob"] = config.normalizes_choice;
    json["decoder_sparse_step"] = int64_t{1};
    json["mlp_only_layers"] = Json(Json::Array{});
  } else {
    json["intermediate_size"] = a.intermediate;
  }
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
