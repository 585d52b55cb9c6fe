#include "model/architecture_config.h"

#include <fmt/format.h>
#include <optional>

#include "core/json.h"

namespace stagecoach {

namespace {

/// Reads the shape out of the fields of one config.json.
class ShapeReader {
 public:
  ShapeReader(ConfigFields& fields, ModelFamily family) : fields_(fields) {
    shape_.family = family;
  }

  Result<Architecture> read() {
    STAGECOACH_RETURN_IF_ERROR(read_sizes());
    STAGECOACH_RETURN_IF_ERROR(read_switches());
    STAGECOACH_RETURN_IF_ERROR(read_experts());
    STAGECOACH_RETURN_IF_ERROR(read_windows());
    STAGECOACH_RETURN_IF_ERROR(check_weights());
    if (Status status = check_architecture(shape_); !status.is_ok()) {
      return status.with_context(fields_.source());
    }
    return std::move(shape_);
  }

 private:
  ModelFamily family() const { return shape_.family; }

  Status read_sizes() {
    Architecture& a = shape_;
    STAGECOACH_RETURN_IF_ERROR(fields_.read_integer({"vocab_size"}, a.vocabulary));
    STAGECOACH_RETURN_IF_ERROR(fields_.read_integer({"max_position_embeddings"}, a.positions));
    STAGECOACH_RETURN_IF_ERROR(fields_.read_integer({"hidden_size"}, a.hidden));
    STAGECOACH_RETURN_IF_ERROR(fields_.read_integer({"num_hidden_layers"}, a.layers));
    STAGECOACH_RETURN_IF_ERROR(fields_.read_integer({"num_attention_heads"}, a.heads));
    STAGECOACH_RETURN_IF_ERROR(
        fields_.read_integer_or({"num_key_value_heads"}, a.heads, a.kv_heads));
    if (family() != ModelFamily::kLlama || fields_.find("head_dim") != nullptr) {
      return fields_.read_integer({"head_dim"}, a.head_dim);
    }
    if (a.heads < 1 || a.hidden % a.heads != 0) {
      return fields_.refuse(
          "hidden_size", std::to_string(a.hidden),
          fmt::format("a multiple of num_attention_heads, {}, where head_dim is missing", a.heads));
    }
    return fields_.read_integer_or({"head_dim"}, a.hidden / a.heads, a.head_dim);
  }

  Status read_switches() {
    Architecture& a = shape_;
    bool is_gpt_oss = family() == ModelFamily::kGptOss;
    const Json* activation = fields_.find("hidden_act");
    if (activation != nullptr && !(activation->is_string() && activation->as_string() == "silu")) {
      return fields_.refuse("hidden_act", activation->dump(),
                            "\"silu\": this version has no other");
    }
    STAGECOACH_RETURN_IF_ERROR(fields_.read_bool_or("tie_word_embeddings", false, a.ties_head));
    STAGECOACH_RETURN_IF_ERROR(
        fields_.read_bool_or("attention_bias", is_gpt_oss, a.attention_bias));
    a.mlp_bias = is_gpt_oss;
    return family() == ModelFamily::kLlama ? fields_.read_bool_or("mlp_bias", false, a.mlp_bias)
                                           : Status::ok();
  }

  Status read_experts() {
    Architecture& a = shape_;
    if (family() != ModelFamily::kQwen3Moe && family() != ModelFamily::kGptOss) {
      return fields_.read_integer({"intermediate_size"}, a.intermediate);
    }
    STAGECOACH_RETURN_IF_ERROR(
        fields_.read_integer({"num_experts", "num_local_experts"}, a.experts));
    STAGECOACH_RETURN_IF_ERROR(
        fields_.read_integer({"num_experts_per_tok", "experts_per_token"}, a.experts_per_token));
    if (a.experts < 1) return fields_.refuse("num_experts", std::to_string(a.experts), "1 or more");
    if (family() == ModelFamily::kGptOss) {
      return fields_.read_integer({"intermediate_size"}, a.intermediate);
    }
    STAGECOACH_RETURN_IF_ERROR(fields_.read_integer({"moe_intermediate_size"}, a.intermediate));
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<int64_t> step,
                                fields_.find_integer({"decoder_sparse_step"}));
    if (step.value_or(1) != 1) {
      return fields_.refuse("decoder_sparse_step", std::to_string(*step),
                            "1: this version knows models whose layers all have experts");
    }
    const Json* dense = fields_.find("mlp_only_layers");
    if (dense == nullptr || (dense->is_array() && dense->items().empty())) return Status::ok();
    return fields_.refuse("mlp_only_layers", dense->dump(),
                          "none: this version knows models whose layers all have experts");
  }

  /// Which layers have a sliding window, as transformers takes it: none of Llama's; all or none of
  /// Qwen3-MoE's; of the others as `layer_types` says where there is one, else the older switches.
  Status read_windows() {
    Architecture& a = shape_;
    if (a.layers < 1) return Status::ok();  // refused by name later
    if (family() == ModelFamily::kLlama) return Status::ok();
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<int64_t> window,
                                fields_.find_integer({"sliding_window"}));
    if (window && *window < 1)
      return fields_.refuse("sliding_window", std::to_string(*window), "1 or more");
    const Json* types = fields_.find("layer_types");
    if (types != nullptr && family() != ModelFamily::kQwen3Moe) {
      return read_layer_types(*types, window);
    }
    if (family() == ModelFamily::kGptOss) {
      if (!window) return fields_.refuse("sliding_window", "missing", "an integer");
      fields_.note_default("layer_types = sliding and full in turn");
      for (int64_t layer = 0; layer < a.layers; ++layer) {
        a.windows.push_back(layer % 2 == 0 ? *window : 0);
      }
      return Status::ok();
    }
    const Json* uses = fields_.find("use_sliding_window");
    if (uses == nullptr) return Status::ok();
    if (!uses->is_bool())
      return fields_.refuse("use_sliding_window", uses->dump(), "true or false");
    if (!uses->as_bool()) return Status::ok();
    if (!window)
      return fields_.refuse("sliding_window", "missing", "an integer with use_sliding_window");
    int64_t full = 0;
    if (family() != ModelFamily::kQwen3Moe) {
      STAGECOACH_RETURN_IF_ERROR(fields_.read_integer({"max_window_layers"}, full));
    }
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      a.windows.push_back(layer < full ? 0 : *window);
    }
    return Status::ok();
  }

  Status read_layer_types(const Json& types, std::optional<int64_t> window) {
    Architecture& a = shape_;
    if (!types.is_array() || static_cast<int64_t>(types.items().size()) != a.layers) {
      return fields_.refuse(
          "layer_types",
          types.is_array() ? fmt::format("{} entries", types.items().size()) : types.dump(),
          fmt::format("a list of num_hidden_layers, {}, entries", a.layers));
    }
    for (size_t layer = 0; layer < types.items().size(); ++layer) {
      const Json& type = types.items()[layer];
      std::string name = fmt::format("layer_types[{}]", layer);
      bool is_full = type.is_string() && type.as_string() == "full_attention";
      bool is_sliding = type.is_string() && type.as_string() == "sliding_attention";
      if (!is_full && !is_sliding) {
        return fields_.refuse(name, type.dump(), "\"full_attention\" or \"sliding_attention\"");
      }
      if (is_sliding && family() == ModelFamily::kQwen3) {
        const Json* uses = fields_.find("use_sliding_window");
        if (uses == nullptr || !uses->is_bool() || !uses->as_bool()) {
          return fields_.refuse("use_sliding_window", uses == nullptr ? "missing" : uses->dump(),
                                fmt::format("true, as {} slides", name));
        }
      }
      if (is_sliding && !window) {
        return fields_.refuse("sliding_window", "missing",
                              fmt::format("an integer, as {} slides", name));
      }
      a.windows.push_back(is_sliding ? *window : 0);
    }
    return Status::ok();
  }

  /// Weights are planned in the compute type; GPT-OSS is published packed and unpacked on loading.
  Status check_weights() {
    const Json* quantization = fields_.find("quantization_config");
    if (quantization == nullptr) return Status::ok();
    const Json* method = quantization->find("quant_method");
    bool is_mxfp4 = method != nullptr && method->is_string() && method->as_string() == "mxfp4";
    if (!is_mxfp4 || family() != ModelFamily::kGptOss) {
      return fields_.refuse("quantization_config", quantization->dump(),
                            "none: this version has fp32, bf16 and fp16 weights, and GPT-OSS's "
                            "mxfp4, which it unpacks");
    }
    for (const auto& [key, value] : quantization->members()) {
      if (key == "modules_to_not_convert") {
        STAGECOACH_RETURN_IF_ERROR(check_plain_modules(value));
      } else if (key != "quant_method" && key != "dequantize") {
        return fields_.refuse("quantization_config." + key, value.dump(),
                              "quant_method, modules_to_not_convert and dequantize alone");
      }
    }
    fields_.note_default("quantization_config: mxfp4 weights count as unpacked");
    return Status::ok();
  }

  /// What is packed are the experts, and nothing else is.
  Status check_plain_modules(const Json& modules) {
    constexpr std::string_view kField = "quantization_config.modules_to_not_convert";
    if (modules.is_null()) return Status::ok();
    if (!modules.is_array()) return fields_.refuse(kField, modules.dump(), "a list of names");
    for (const Json& module : modules.items()) {
      bool is_other = module.is_string() && module.as_string().find("experts") == std::string::npos;
      if (!is_other)
        return fields_.refuse(kField, module.dump(), "names of modules, not of experts");
    }
    return Status::ok();
  }

  ConfigFields& fields_;
  Architecture shape_;
};

}  // namespace

Result<Json> parse_config_json(std::string_view text, const std::string& source) {
  Result<Json> json = Json::parse(text);
  if (!json.is_ok()) return json.status().with_context(source);
  if (json->is_object()) return json;
  return invalid_argument(
      fmt::format("{}: expected a JSON object, found {}", source, json->type_name()));
}

Result<ModelFamily> read_model_family(ConfigFields& fields) {
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<std::string> type, fields.find_text("model_type"));
  if (!type) return fields.refuse("model_type", "missing", "text");
  for (ModelFamily family : {ModelFamily::kGpt2, ModelFamily::kLlama, ModelFamily::kQwen3,
                             ModelFamily::kQwen3Moe, ModelFamily::kGptOss}) {
    if (*type == model_family_name(family)) return family;
  }
  return unimplemented(fmt::format(
      "{}: model_type is \"{}\"; this version knows gpt2, llama, qwen3, qwen3_moe and gpt_oss",
      fields.source(), *type));
}

Result<Architecture> read_architecture(ConfigFields& fields, ModelFamily family) {
  return ShapeReader(fields, family).read();
}

Result<ParsedArchitecture> parse_architecture(std::string_view text, const std::string& source) {
  STAGECOACH_ASSIGN_OR_RETURN(Json json, parse_config_json(text, source));
  ConfigFields fields(json, source);
  STAGECOACH_ASSIGN_OR_RETURN(ModelFamily family, read_model_family(fields));
  if (family == ModelFamily::kGpt2) {
    STAGECOACH_ASSIGN_OR_RETURN(ParsedGpt2Config parsed, parse_gpt2_config(text, source));
    Architecture shape = architecture_of(parsed.config);
    if (Status status = check_architecture(shape); !status.is_ok()) {
      return status.with_context(source);
    }
    return ParsedArchitecture{std::move(shape), std::move(parsed.defaulted)};
  }
  STAGECOACH_ASSIGN_OR_RETURN(Architecture architecture, read_architecture(fields, family));
  return ParsedArchitecture{std::move(architecture), fields.defaulted()};
}

}  // namespace stagecoach
