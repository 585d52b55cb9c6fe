#include "model/gpt2_config.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <span>

#include "model/architecture.h"
#include "model/config_fields.h"

namespace stagecoach {

namespace {

struct Gpt2Preset {
  const char* name;
  int64_t n_embd, n_layer, n_head;
};

constexpr std::array<Gpt2Preset, 2> kGpt2Shapes = {{
    {"gpt2", 768, 12, 12},
    {"gpt2-medium", 1024, 24, 16},
}};

/// Fields of GPT-2's own that say nothing about the language model.
constexpr std::string_view kHarmlessOfGpt2[] = {
    "embd_pdrop",
    "initializer_range",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
};

/// A switch that changes the result and has one supported value.
struct FixedSwitch {
  const char* name;
  bool supported;
  const char* meaning;
};

constexpr FixedSwitch kSwitches[] = {
    {"scale_attn_weights", true, "attention scores are divided by sqrt(head dimension)"},
    {"scale_attn_by_inverse_layer_idx", false, "scores are not scaled by the layer's number"},
    {"reorder_and_upcast_attn", false, "attention is not reordered"},
    {"add_cross_attention", false, "there is no encoder to attend to"},
    {"is_encoder_decoder", false, "there is no encoder"},
    {"tie_word_embeddings", true, "the head is the token embedding"},
};

std::string number_text(double value) {
  return fmt::format("{}", value);
}

/// Reads fields of one config.json.
class ConfigReader {
 public:
  ConfigReader(const Json& json, const std::string& source) : json_(json), source_(source) {}

  Result<ParsedGpt2Config> read() {
    STAGECOACH_RETURN_IF_ERROR(check_model_type());
    STAGECOACH_RETURN_IF_ERROR(read_sizes());
    STAGECOACH_RETURN_IF_ERROR(read_numbers());
    STAGECOACH_RETURN_IF_ERROR(check_fixed());
    list_ignored();
    if (Status status = check_gpt2_config(parsed_.config); !status.is_ok()) {
      return status.with_context(source_);
    }
    return parsed_;
  }

 private:
  Status refuse(std::string_view field, std::string_view found, std::string_view expected) const {
    return invalid_argument(
        fmt::format("{}: {} is {}, expected {}", source_, field, found, expected));
  }

  const Json* field(std::string_view name) {
    known_.emplace_back(name);
    const Json* value = json_.find(name);
    return value != nullptr && value->is_null() ? nullptr : value;
  }

  Status check_model_type() {
    const Json* type = field("model_type");
    if (type == nullptr) {
      return invalid_argument(source_ + ": model_type is missing, expected \"gpt2\"");
    }
    if (!type->is_string()) return refuse("model_type", type->dump(), "text");
    if (type->as_string() == "gpt2") return Status::ok();
    return unimplemented(
        fmt::format("{}: model_type is \"{}\", expected \"gpt2\"", source_, type->as_string()));
  }

  Status read_integer(std::string_view name, int64_t& target) {
    const Json* value = field(name);
    if (value == nullptr) {
      parsed_.defaulted.push_back(fmt::format("{} = {}", name, target));
      return Status::ok();
    }
    if (!value->is_integer()) return refuse(name, value->dump(), "an integer");
    target = value->as_integer();
    return Status::ok();
  }

  Status read_number(std::string_view name, double& target) {
    const Json* value = field(name);
    if (value == nullptr) {
      parsed_.defaulted.push_back(fmt::format("{} = {}", name, number_text(target)));
      return Status::ok();
    }
    if (!value->is_number()) return refuse(name, value->dump(), "a number");
    target = value->as_number();
    return Status::ok();
  }

  Status read_sizes() {
    Gpt2Config& config = parsed_.config;
    STAGECOACH_RETURN_IF_ERROR(read_integer("vocab_size", config.vocab_size));
    STAGECOACH_RETURN_IF_ERROR(read_integer("n_positions", config.n_positions));
    STAGECOACH_RETURN_IF_ERROR(read_integer("n_embd", config.n_embd));
    STAGECOACH_RETURN_IF_ERROR(read_integer("n_layer", config.n_layer));
    STAGECOACH_RETURN_IF_ERROR(read_integer("n_head", config.n_head));
    if (const Json* value = field("n_ctx"); value != nullptr) {
      if (!value->is_integer() || value->as_integer() != config.n_positions) {
        return refuse("n_ctx", value->dump(), fmt::format("n_positions, {}", config.n_positions));
      }
    }
    if (config.n_embd > 0 && config.n_embd <= kMaxDimension) config.n_inner = 4 * config.n_embd;
    return read_integer("n_inner", config.n_inner);
  }

  Status read_numbers() {
    Gpt2Config& config = parsed_.config;
    STAGECOACH_RETURN_IF_ERROR(read_number("layer_norm_epsilon", config.layer_norm_epsilon));
    STAGECOACH_RETURN_IF_ERROR(read_number("resid_pdrop", config.resid_pdrop));
    STAGECOACH_RETURN_IF_ERROR(read_number("embd_pdrop", config.embd_pdrop));
    STAGECOACH_RETURN_IF_ERROR(read_number("attn_pdrop", config.attn_pdrop));
    return read_number("initializer_range", config.initializer_range);
  }

  Status check_fixed() {
    const Json* activation = field("activation_function");
    if (activation == nullptr) {
      parsed_.defaulted.emplace_back("activation_function = gelu_new");
    } else if (!activation->is_string() || activation->as_string() != "gelu_new") {
      return refuse("activation_function", activation->dump(),
                    "\"gelu_new\": this version has no other");
    }
    for (const FixedSwitch& fixed : kSwitches) {
      const Json* value = field(fixed.name);
      if (value == nullptr) {
        if (json_.find(fixed.name) == nullptr) continue;
        return refuse(fixed.name, "null", fixed.supported ? "true" : "false");
      }
      if (value->is_bool() && value->as_bool() == fixed.supported) continue;
      return refuse(fixed.name, value->dump(),
                    fmt::format("{} ({}); this version has nothing else",
                                fixed.supported ? "true" : "false", fixed.meaning));
    }
    const Json* pruned = field("pruned_heads");
    if (pruned != nullptr && !(pruned->is_object() && pruned->members().empty())) {
      return refuse("pruned_heads", pruned->dump(), "none: this version keeps all heads");
    }
    if (const Json* quantization = field("quantization_config"); quantization != nullptr) {
      return refuse("quantization_config", "set",
                    "none: this version reads fp32, bf16 and fp16 weights only");
    }
    return Status::ok();
  }

  void list_ignored() {
    for (const auto& [name, value] : json_.members()) {
      bool is_known = std::find(known_.begin(), known_.end(), name) != known_.end() ||
                      is_harmless_field(name) ||
                      std::find(std::begin(kHarmlessOfGpt2), std::end(kHarmlessOfGpt2), name) !=
                          std::end(kHarmlessOfGpt2);
      if (!is_known) parsed_.ignored.push_back(name);
    }
  }

  const Json& json_;
  const std::string& source_;
  ParsedGpt2Config parsed_;
  std::vector<std::string> known_;
};

Status check_size(std::string_view name, int64_t value, int64_t limit) {
  if (value >= 1 && value <= limit) return Status::ok();
  return invalid_argument(fmt::format("{} is {}, expected 1 to {}", name, value, limit));
}

Status check_probability(std::string_view name, double value) {
  if (value >= 0 && value < 1) return Status::ok();
  return invalid_argument(
      fmt::format("{} is {}, expected at least 0 and below 1", name, number_text(value)));
}

}  // namespace

Status check_gpt2_config(const Gpt2Config& config) {
  STAGECOACH_RETURN_IF_ERROR(check_size("vocab_size", config.vocab_size, kMaxDimension));
  STAGECOACH_RETURN_IF_ERROR(check_size("n_positions", config.n_positions, kMaxDimension));
  STAGECOACH_RETURN_IF_ERROR(check_size("n_embd", config.n_embd, kMaxDimension));
  STAGECOACH_RETURN_IF_ERROR(check_size("n_layer", config.n_layer, kMaxLayers));
  STAGECOACH_RETURN_IF_ERROR(check_size("n_head", config.n_head, kMaxDimension));
  STAGECOACH_RETURN_IF_ERROR(check_size("n_inner", config.n_inner, 4 * kMaxDimension));
  if (config.n_embd % config.n_head != 0) {
    return invalid_argument(fmt::format("n_embd is {}, expected a multiple of n_head, {}",
                                        config.n_embd, config.n_head));
  }
  if (!(config.layer_norm_epsilon > 0 && config.layer_norm_epsilon < 1)) {
    return invalid_argument(fmt::format("layer_norm_epsilon is {}, expected above 0 and below 1",
                                        number_text(config.layer_norm_epsilon)));
  }
  if (!(config.initializer_range >= 0 && config.initializer_range < 100)) {
    return invalid_argument(fmt::format("initializer_range is {}, expected 0 to 100",
                                        number_text(config.initializer_range)));
  }
  STAGECOACH_RETURN_IF_ERROR(check_probability("resid_pdrop", config.resid_pdrop));
  STAGECOACH_RETURN_IF_ERROR(check_probability("embd_pdrop", config.embd_pdrop));
  return check_probability("attn_pdrop", config.attn_pdrop);
}

Result<ParsedGpt2Config> parse_gpt2_config(std::string_view text, const std::string& source) {
  Result<Json> json = Json::parse(text);
  if (!json.is_ok()) return json.status().with_context(source);
  if (!json->is_object()) {
    return invalid_argument(
        fmt::format("{}: expected a JSON object, found {}", source, json->type_name()));
  }
  return ConfigReader(*json, source).read();
}

Result<Gpt2Config> gpt2_preset(std::string_view name) {
  for (const Gpt2Preset& preset : kGpt2Shapes) {
    if (name != preset.name) continue;
    Gpt2Config config;
    config.n_embd = preset.n_embd;
    config.n_layer = preset.n_layer;
    config.n_head = preset.n_head;
    config.n_inner = 4 * preset.n_embd;
    return config;
  }
  STAGECOACH_RETURN_IF_ERROR(architecture_preset(name).status());
  return unimplemented(fmt::format("preset '{}' is of another family than GPT-2", name));
}

Json gpt2_config_to_json(const Gpt2Config& config) {
  Json json = Json::object();
  json["architectures"] = Json(Json::Array{Json("GPT2LMHeadModel")});
  json["model_type"] = "gpt2";
  json["activation_function"] = "gelu_new";
  json["vocab_size"] = config.vocab_size;
  json["n_positions"] = config.n_positions;
  json["n_ctx"] = config.n_positions;
  json["n_embd"] = config.n_embd;
  json["n_layer"] = config.n_layer;
  json["n_head"] = config.n_head;
  json["n_inner"] = config.n_inner;
  json["layer_norm_epsilon"] = config.layer_norm_epsilon;
  json["resid_pdrop"] = config.resid_pdrop;
  json["embd_pdrop"] = config.embd_pdrop;
  json["attn_pdrop"] = config.attn_pdrop;
  json["initializer_range"] = config.initializer_range;
  json["scale_attn_weights"] = true;
  json["scale_attn_by_inverse_layer_idx"] = false;
  json["reorder_and_upcast_attn"] = false;
  json["tie_word_embeddings"] = true;
  json["torch_dtype"] = "float32";
  return json;
}

}  // namespace stagecoach
