#include "model/architecture_config.h"

#include <fmt/format.h>
#include <initializer_list>
#include <optional>

#include "core/json.h"

namespace stagecoach {

namespace {

/// Reads fields of one config.json; the first name of a list that is there counts, and two that are
/// there must agree.
class ShapeReader {
 public:
  ShapeReader(const Json& json, const std::string& source, ModelFamily family)
      : json_(json), source_(source) {
    parsed_.architecture.family = family;
  }

  Result<ParsedArchitecture> read() {
    STAGECOACH_RETURN_IF_ERROR(read_sizes());
    STAGECOACH_RETURN_IF_ERROR(read_switches());
    STAGECOACH_RETURN_IF_ERROR(read_experts());
    STAGECOACH_RETURN_IF_ERROR(read_windows());
    STAGECOACH_RETURN_IF_ERROR(check_weights());
    if (Status status = check_architecture(parsed_.architecture); !status.is_ok()) {
      return status.with_context(source_);
    }
    return std::move(parsed_);
  }

 private:
  using Names = std::initializer_list<std::string_view>;
  ModelFamily family() const { return parsed_.architecture.family; }

  Status refuse(std::string_view field, std::string_view found, std::string_view expected) const {
    return invalid_argument(
        fmt::format("{}: {} is {}, expected {}", source_, field, found, expected));
  }

  const Json* field(std::string_view name) const {
    const Json* value = json_.find(name);
    return value != nullptr && value->is_null() ? nullptr : value;
  }

  /// Nothing when none of the names is there.
  Result<std::optional<int64_t>> find_integer(Names names) const {
    std::optional<int64_t> found;
    std::string_view first;
    for (std::string_view name : names) {
      const Json* value = field(name);
      if (value == nullptr) continue;
      if (!value->is_integer()) return refuse(name, value->dump(), "an integer");
      if (found && *found != value->as_integer()) {
        return refuse(name, value->dump(), fmt::format("{} as {} says", *found, first));
      }
      found = value->as_integer();
      first = name;
    }
    return found;
  }

  Status read_integer(Names names, int64_t& target) const {
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<int64_t> found, find_integer(names));
    if (!found) {
      return invalid_argument(
          fmt::format("{}: {} is missing, expected an integer", source_, *names.begin()));
    }
    target = *found;
    return Status::ok();
  }

  Status read_integer_or(Names names, int64_t fallback, int64_t& target) {
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<int64_t> found, find_integer(names));
    if (!found) parsed_.defaulted.push_back(fmt::format("{} = {}", *names.begin(), fallback));
    target = found.value_or(fallback);
    return Status::ok();
  }

  Status read_bool_or(std::string_view name, bool fallback, bool& target) {
    const Json* value = field(name);
    target = fallback;
    if (value == nullptr) {
      parsed_.defaulted.push_back(fmt::format("{} = {}", name, fallback));
      return Status::ok();
    }
    if (!value->is_bool()) return refuse(name, value->dump(), "true or false");
    target = value->as_bool();
    return Status::ok();
  }

  Status read_sizes() {
    Architecture& a = parsed_.architecture;
    STAGECOACH_RETURN_IF_ERROR(read_integer({"vocab_size"}, a.vocabulary));
    STAGECOACH_RETURN_IF_ERROR(read_integer({"max_position_embeddings"}, a.positions));
    STAGECOACH_RETURN_IF_ERROR(read_integer({"hidden_size"}, a.hidden));
    STAGECOACH_RETURN_IF_ERROR(read_integer({"num_hidden_layers"}, a.layers));
    STAGECOACH_RETURN_IF_ERROR(read_integer({"num_attention_heads"}, a.heads));
    STAGECOACH_RETURN_IF_ERROR(read_integer_or({"num_key_value_heads"}, a.heads, a.kv_heads));
    if (family() != ModelFamily::kLlama || field("head_dim") != nullptr) {
      return read_integer({"head_dim"}, a.head_dim);
    }
    if (a.heads < 1 || a.hidden % a.heads != 0) {
      return refuse(
          "hidden_size", std::to_string(a.hidden),
          fmt::format("a multiple of num_attention_heads, {}, where head_dim is missing", a.heads));
    }
    return read_integer_or({"head_dim"}, a.hidden / a.heads, a.head_dim);
  }

  Status read_switches() {
    Architecture& a = parsed_.architecture;
    bool is_gpt_oss = family() == ModelFamily::kGptOss;
    const Json* activation = field("hidden_act");
    if (activation != nullptr && !(activation->is_string() && activation->as_string() == "silu")) {
      return refuse("hidden_act", activation->dump(), "\"silu\": this version has no other");
    }
    STAGECOACH_RETURN_IF_ERROR(read_bool_or("tie_word_embeddings", false, a.ties_head));
    STAGECOACH_RETURN_IF_ERROR(read_bool_or("attention_bias", is_gpt_oss, a.attention_bias));
    a.mlp_bias = is_gpt_oss;
    return family() == ModelFamily::kLlama ? read_bool_or("mlp_bias", false, a.mlp_bias)
                                           : Status::ok();
  }

  Status read_experts() {
    Architecture& a = parsed_.architecture;
    if (family() != ModelFamily::kQwen3Moe && family() != ModelFamily::kGptOss) {
      return read_integer({"intermediate_size"}, a.intermediate);
    }
    STAGECOACH_RETURN_IF_ERROR(read_integer({"num_experts", "num_local_experts"}, a.experts));
    STAGECOACH_RETURN_IF_ERROR(
        read_integer({"num_experts_per_tok", "experts_per_token"}, a.experts_per_token));
    if (a.experts < 1) return refuse("num_experts", std::to_string(a.experts), "1 or more");
    if (family() == ModelFamily::kGptOss) {
      return read_integer({"intermediate_size"}, a.intermediate);
    }
    STAGECOACH_RETURN_IF_ERROR(read_integer({"moe_intermediate_size"}, a.intermediate));
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<int64_t> step, find_integer({"decoder_sparse_step"}));
    if (step.value_or(1) != 1) {
      return refuse("decoder_sparse_step", std::to_string(*step),
                    "1: this version knows models whose layers all have experts");
    }
    const Json* dense = field("mlp_only_layers");
    if (dense == nullptr || (dense->is_array() && dense->items().empty())) return Status::ok();
    return refuse("mlp_only_layers", dense->dump(),
                  "none: this version knows models whose layers all have experts");
  }

  /// Which layers have a sliding window: `layer_types` where there is one, else the older switches.
  Status read_windows() {
    Architecture& a = parsed_.architecture;
    if (a.layers < 1) return Status::ok();  // refused by name later
    STAGECOACH_ASSIGN_OR_RETURN(std::optional<int64_t> window, find_integer({"sliding_window"}));
    if (window && *window < 1)
      return refuse("sliding_window", std::to_string(*window), "1 or more");
    if (const Json* types = field("layer_types"); types != nullptr) {
      return read_layer_types(*types, window);
    }
    if (family() == ModelFamily::kGptOss) {
      if (!window) return refuse("sliding_window", "missing", "an integer");
      parsed_.defaulted.emplace_back("layer_types = sliding and full in turn");
      for (int64_t layer = 0; layer < a.layers; ++layer) {
        a.windows.push_back(layer % 2 == 0 ? *window : 0);
      }
      return Status::ok();
    }
    const Json* uses = field("use_sliding_window");
    if (uses == nullptr) return Status::ok();
    if (!uses->is_bool()) return refuse("use_sliding_window", uses->dump(), "true or false");
    if (!uses->as_bool()) return Status::ok();
    if (!window) return refuse("sliding_window", "missing", "an integer with use_sliding_window");
    int64_t full = 0;
    STAGECOACH_RETURN_IF_ERROR(read_integer({"max_window_layers"}, full));
    for (int64_t layer = 0; layer < a.layers; ++layer) {
      a.windows.push_back(layer < full ? 0 : *window);
    }
    return Status::ok();
  }

  Status read_layer_types(const Json& types, std::optional<int64_t> window) {
    Architecture& a = parsed_.architecture;
    if (!types.is_array() || static_cast<int64_t>(types.items().size()) != a.layers) {
      return refuse(
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
        return refuse(name, type.dump(), "\"full_attention\" or \"sliding_attention\"");
      }
      if (is_sliding && !window) {
        return refuse("sliding_window", "missing", fmt::format("an integer, as {} slides", name));
      }
      a.windows.push_back(is_sliding ? *window : 0);
    }
    return Status::ok();
  }

  /// Weights are planned in the compute type; GPT-OSS is published packed and unpacked on loading.
  Status check_weights() {
    const Json* quantization = field("quantization_config");
    if (quantization == nullptr) return Status::ok();
    const Json* method = quantization->find("quant_method");
    bool is_mxfp4 = method != nullptr && method->is_string() && method->as_string() == "mxfp4";
    if (!is_mxfp4 || family() != ModelFamily::kGptOss) {
      return refuse("quantization_config", quantization->dump(),
                    "none: this version plans fp32, bf16 and fp16 weights, and GPT-OSS's mxfp4 as "
                    "unpacked");
    }
    parsed_.defaulted.emplace_back("quantization_config: mxfp4 weights count as unpacked");
    return Status::ok();
  }

  const Json& json_;
  const std::string& source_;
  ParsedArchitecture parsed_;
};

}  // namespace

Result<ParsedArchitecture> parse_architecture(std::string_view text, const std::string& source) {
  Result<Json> json = Json::parse(text);
  if (!json.is_ok()) return json.status().with_context(source);
  if (!json->is_object()) {
    return invalid_argument(
        fmt::format("{}: expected a JSON object, found {}", source, json->type_name()));
  }
  const Json* type = json->find("model_type");
  if (type == nullptr || !type->is_string()) {
    return invalid_argument(fmt::format("{}: model_type is {}, expected text", source,
                                        type == nullptr ? "missing" : type->dump()));
  }
  if (type->as_string() == model_family_name(ModelFamily::kGpt2)) {
    STAGECOACH_ASSIGN_OR_RETURN(ParsedGpt2Config parsed, parse_gpt2_config(text, source));
    Architecture shape = architecture_of(parsed.config);
    if (Status status = check_architecture(shape); !status.is_ok()) {
      return status.with_context(source);
    }
    return ParsedArchitecture{std::move(shape), std::move(parsed.defaulted)};
  }
  for (ModelFamily family :
       {ModelFamily::kLlama, ModelFamily::kQwen3, ModelFamily::kQwen3Moe, ModelFamily::kGptOss}) {
    if (type->as_string() == model_family_name(family)) {
      return ShapeReader(*json, source, family).read();
    }
  }
  return unimplemented(fmt::format(
      "{}: model_type is \"{}\"; this version knows gpt2, llama, qwen3, qwen3_moe and gpt_oss",
      source, type->as_string()));
}

}  // namespace stagecoach
