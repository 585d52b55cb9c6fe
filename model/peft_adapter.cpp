#include "model/peft_adapter.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <set>

#include "core/file.h"
#include "core/float_pieces.h"
#include "model/architecture_config.h"
#include "model/config_fields.h"
#include "model/safetensors.h"

namespace stagecoach {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "base_model.model.";
/// What to do about tensors that are not those of adapter_config.json.
constexpr std::string_view kAdvice =
    "; is adapter_config.json the one that it was saved with, and was it made for this base? Save "
    "or fetch the folder anew";

/// Fields that say nothing about the result.
constexpr std::string_view kHarmless[] = {
    "auto_mapping",  "revision",     "peft_version",      "inference_mode",
    "megatron_core", "loftq_config", "qalora_group_size", "ensure_weight_tying",
    "eva_config",    "corda_config", "runtime_config",    "lora_ga_config"};

bool is_off(const Json& value) {
  return value.is_null() || (value.is_bool() && !value.as_bool()) ||
         (value.is_array() && value.items().empty()) ||
         (value.is_object() && value.members().empty());
}

/// Ways to begin that leave the base as it is; others (PiSSA, OLoRA, LoftQ, …) change it.
Status check_beginning(ConfigFields& fields) {
  const Json* value = fields.find("init_lora_weights");
  if (value == nullptr || value->is_bool()) return Status::ok();
  static const std::set<std::string> kKnown = {"gaussian", "eva", "orthogonal"};
  if (value->is_string() && kKnown.contains(value->as_string())) return Status::ok();
  return fields.refuse("init_lora_weights", value->dump(),
                       "one that leaves the base as it is: true, false, \"gaussian\", \"eva\" or "
                       "\"orthogonal\"; convert the adapter to plain LoRA with PEFT first");
}

Status read_targets(ConfigFields& fields, LoraOptions& lora) {
  const Json* value = fields.find("target_modules");
  if (value != nullptr && value->is_string() && value->as_string() == kAllLinear) {
    lora.targets = {std::string(kAllLinear)};
    return Status::ok();
  }
  bool is_list = value != nullptr && value->is_array() && !value->items().empty();
  for (size_t i = 0; is_list && i < value->items().size(); ++i) {
    const Json& item = value->items()[i];
    is_list = item.is_string() && !item.as_string().empty();
    if (is_list) lora.targets.push_back(item.as_string());
  }
  if (!is_list) {
    return fields.refuse("target_modules", value == nullptr ? "missing" : value->dump(),
                         "\"all-linear\" or a list of names; patterns are not read");
  }
  std::sort(lora.targets.begin(), lora.targets.end());
  return Status::ok();
}

Status check_text(ConfigFields& fields, std::string_view name, std::string_view expected) {
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<std::string> found, fields.find_text(name));
  if (!found || *found == expected) return Status::ok();
  return fields.refuse(name, *found, fmt::format("\"{}\"", expected));
}

/// Everything else must be off, known or not.
Status check_rest(const ConfigFields& fields, const Json& json) {
  for (const std::string& name : fields.unread()) {
    if (std::find(std::begin(kHarmless), std::end(kHarmless), name) != std::end(kHarmless)) {
      continue;
    }
    const Json& value = *json.find(name);
    if (is_off(value)) continue;
    return fields.refuse(name, value.dump(),
                         "none: this version trains plain LoRA, and does not have that setting");
  }
  return Status::ok();
}

/// The adapter file's tensors by parameter of the network.
class AdapterMatcher {
 public:
  AdapterMatcher(const SafetensorsFile& file, const Network& network)
      : file_(file), network_(network) {}

  struct Match {
    const SafetensorInfo* tensor;
    int block;
    int64_t offset;
  };

  Result<std::vector<Match>> match() {
    std::set<const SafetensorInfo*> used;
    for (size_t block = 0; block < network_.blocks.size(); ++block) {
      if (!network_.blocks[block].is_adapter) continue;
      for (const ParameterInfo& parameter : network_.blocks[block].parameters) {
        STAGECOACH_ASSIGN_OR_RETURN(const SafetensorInfo* tensor, find(parameter));
        used.insert(tensor);
        matches_.push_back({tensor, static_cast<int>(block), parameter.offset});
      }
    }
    for (const SafetensorInfo& tensor : file_.header().tensors) {
      if (used.contains(&tensor)) continue;
      return invalid_argument(
          fmt::format("'{}': tensor '{}' belongs to no adapter of this model and these targets: "
                      "leave it out, or "
                      "merge the adapter with PEFT",
                      file_.path(), tensor.name));
    }
    return std::move(matches_);
  }

 private:
  Result<const SafetensorInfo*> find(const ParameterInfo& parameter) const {
    std::string name = adapter_tensor_name(parameter.name);
    const SafetensorInfo* tensor = file_.find(name);
    if (tensor == nullptr) {
      return invalid_argument(
          fmt::format("'{}': tensor '{}' is missing{}", file_.path(), name, kAdvice));
    }
    std::vector<int64_t> shape(parameter.shape.dims.begin(),
                               parameter.shape.dims.begin() + parameter.shape.rank);
    if (tensor->shape != shape) {
      return invalid_argument(fmt::format("'{}': tensor '{}' has shape {}, expected {}{}",
                                          file_.path(), name, format_shape(tensor->shape),
                                          format_shape(shape), kAdvice));
    }
    if (is_float(tensor->type)) return tensor;
    return unimplemented(fmt::format("'{}': tensor '{}' is {}, expected F32, BF16 or F16",
                                     file_.path(), name, safetensors_type_name(tensor->type)));
  }

  const SafetensorsFile& file_;
  const Network& network_;
  std::vector<Match> matches_;
};

Result<SafetensorsFile> open_adapters(const std::string& folder) {
  std::string path = folder + "/" + kAdapterWeightsFile;
  std::error_code ignored;
  if (!fs::exists(path, ignored) && fs::exists(folder + "/adapter_model.bin", ignored)) {
    return unimplemented(
        fmt::format("'{}' has its weights in adapter_model.bin, and only {} is read: load the "
                    "adapter with PEFT "
                    "and save it again",
                    folder, kAdapterWeightsFile));
  }
  return SafetensorsFile::open(path);
}

}  // namespace

bool is_adapter_folder(const std::string& folder) {
  std::error_code ignored;
  return fs::exists(folder + "/" + kAdapterConfigFile, ignored);
}

Result<AdapterConfig> parse_adapter_config(std::string_view text, const std::string& source) {
  STAGECOACH_ASSIGN_OR_RETURN(Json json, parse_config_json(text, source));
  ConfigFields fields(json, source);
  AdapterConfig config;
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<std::string> method, fields.find_text("peft_type"));
  std::string type = method.value_or("missing");
  if (type != "LORA") return fields.refuse("peft_type", type, "\"LORA\"");
  STAGECOACH_RETURN_IF_ERROR(check_text(fields, "task_type", "CAUSAL_LM"));
  STAGECOACH_RETURN_IF_ERROR(check_text(fields, "bias", "none"));
  STAGECOACH_RETURN_IF_ERROR(fields.read_integer({"r"}, config.lora.rank));
  if (config.lora.rank < 1 || config.lora.rank > kMostLoraRank) {
    return fields.refuse("r", std::to_string(config.lora.rank),
                         fmt::format("a rank from 1 to {}", kMostLoraRank));
  }
  STAGECOACH_RETURN_IF_ERROR(fields.read_number("lora_alpha", config.lora.alpha));
  STAGECOACH_RETURN_IF_ERROR(fields.read_bool_or("use_rslora", false, config.lora.uses_rslora));
  auto scale = static_cast<float>(config.lora.scale());
  if (!(scale > 0) || !std::isfinite(scale)) {
    return fields.refuse("lora_alpha", fmt::format("{}", config.lora.alpha), "a number above 0");
  }
  STAGECOACH_RETURN_IF_ERROR(fields.read_bool_or("fan_in_fan_out", false, config.is_transposed));
  STAGECOACH_RETURN_IF_ERROR(read_targets(fields, config.lora));
  STAGECOACH_RETURN_IF_ERROR(check_beginning(fields));
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<std::string> base,
                              fields.find_text("base_model_name_or_path"));
  config.base = base.value_or("");
  double dropout = 0;
  STAGECOACH_RETURN_IF_ERROR(fields.read_number_or("lora_dropout", 0, dropout));
  if (dropout != 0) {
    config.notes.push_back(fmt::format(
        "{}: lora_dropout is {}; nothing of adapters' inputs is dropped here", source, dropout));
  }
  STAGECOACH_RETURN_IF_ERROR(check_rest(fields, json));
  return config;
}

Result<AdapterConfig> read_adapter_config(const std::string& folder) {
  std::string path = folder + "/" + kAdapterConfigFile;
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
  return parse_adapter_config(text, path);
}

Json adapter_config_to_json(const AdapterConfig& config) {
  Json json = Json::object();
  json["peft_type"] = "LORA";
  json["task_type"] = "CAUSAL_LM";
  json["base_model_name_or_path"] = config.base;
  json["r"] = config.lora.rank;
  double alpha = config.lora.alpha;
  bool is_whole = std::floor(alpha) == alpha && alpha < 1e9;
  json["lora_alpha"] = is_whole ? Json(static_cast<int64_t>(alpha)) : Json(alpha);
  json["use_rslora"] = config.lora.uses_rslora;
  if (config.lora.targets == std::vector<std::string>{std::string(kAllLinear)}) {
    json["target_modules"] = kAllLinear;
  } else {
    json["target_modules"] = Json::array();
    for (const std::string& target : config.lora.targets) json["target_modules"].push_back(target);
  }
  json["fan_in_fan_out"] = config.is_transposed;
  json["bias"] = "none";
  json["lora_dropout"] = 0.0;
  json["init_lora_weights"] = true;
  json["inference_mode"] = true;
  return json;
}

std::string adapter_tensor_name(std::string_view parameter) {
  return std::string(kPrefix) + std::string(parameter);
}

Status load_adapters(const std::string& folder, const Network& network, const ParameterSink& sink) {
  STAGECOACH_ASSIGN_OR_RETURN(SafetensorsFile file, open_adapters(folder));
  STAGECOACH_ASSIGN_OR_RETURN(auto matches, AdapterMatcher(file, network).match());
  for (const auto& match : matches) {
    int64_t count = match.tensor->size / safetensors_type_size(match.tensor->type);
    Status read = for_each_float_piece(count, [&](int64_t first, std::span<float> piece) -> Status {
      STAGECOACH_RETURN_IF_ERROR(file.read_f32(*match.tensor, first, piece));
      return sink(match.block, match.offset + first, piece);
    });
    if (!read.is_ok()) return read;
  }
  return Status::ok();
}

Status check_adapters(const std::string& folder, const Network& network) {
  STAGECOACH_ASSIGN_OR_RETURN(SafetensorsFile file, open_adapters(folder));
  return AdapterMatcher(file, network).match().status();
}

}  // namespace stagecoach
