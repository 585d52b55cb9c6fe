#include "model/model_source.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>

#include "core/digest.h"
#include "core/file.h"
#include "model/architecture_config.h"
#include "model/peft_adapter.h"
#include "model/weight_folder.h"

namespace stagecoach {

namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Result<ParsedModel> parse_model_file(const std::string& path) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
  return parse_model(text, path);
}

Status take_config(Result<ParsedModel> result, ModelSource& source) {
  STAGECOACH_ASSIGN_OR_RETURN(ParsedModel parsed, std::move(result));
  source.model = std::move(parsed.model);
  source.config_json = std::move(parsed.json);
  source.defaulted = std::move(parsed.defaulted);
  source.ignored = std::move(parsed.ignored);
  return Status::ok();
}

/// Whether `model` looks like the name of a repository on the Hugging Face hub.
bool is_hub_name(const std::string& model) {
  size_t slash = model.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == model.size()) return false;
  if (model.find('/', slash + 1) != std::string::npos || model.front() == '.') return false;
  return std::all_of(model.begin(), model.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/';
  });
}

/// Where a MODEL argument leads.
struct ModelPlace {
  fs::path folder;     ///< empty: none
  std::string config;  ///< config.json; empty: a preset
};

Result<ModelPlace> find_model(const std::string& model) {
  if (model.empty()) return invalid_argument("the model's name is empty");
  std::error_code ignored;
  if (fs::is_directory(model, ignored)) {
    fs::path config = fs::path(model) / "config.json";
    if (is_there(config)) return ModelPlace{model, config.string()};
    return not_found(
        fmt::format("'{}' has no config.json: it is not a Hugging Face model folder", model));
  }
  if (is_there(model)) return ModelPlace{{}, model};
  if (is_hub_name(model)) {
    return not_found(fmt::format(
        "there is no folder '{}' here, and nothing is downloaded by itself: run `huggingface-cli "
        "download {} --local-dir {}` and give that folder",
        model, model, model.substr(model.find('/') + 1)));
  }
  if (model.find('/') != std::string::npos) {
    return not_found(fmt::format("'{}' does not exist", model));
  }
  if (is_model_preset(model)) return ModelPlace{};
  return not_found(fmt::format("'{}' is neither a folder nor a config.json, and {}", model,
                               architecture_preset(model).status().message()));
}

bool has_weight_files(const fs::path& folder) {
  return is_there(folder / kWeightsIndexFile) || is_there(folder / kWeightsFile);
}

Status find_weights(const fs::path& folder, ModelSource& source) {
  if (has_weight_files(folder)) {
    source.weights_folder = folder.string();
    return WeightFolder::open(folder.string()).status();
  }
  std::error_code ignored;
  for (fs::directory_iterator it(folder, ignored), end; !ignored && it != end;
       it.increment(ignored)) {
    std::string name = it->path().filename().string();
    if (!name.starts_with("model-") || !name.ends_with(".safetensors")) continue;
    return not_found(fmt::format("'{}' has '{}' but no {}: incomplete download or copy; fetch it",
                                 folder.string(), name, kWeightsIndexFile));
  }
  for (const char* other :
       {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack"}) {
    if (!is_there(folder / other)) continue;
    return unimplemented(fmt::format(
        "'{0}' has its weights in {1}, and only safetensors files are read; convert them: python3 "
        "-c \"from transformers import AutoModelForCausalLM as M; "
        "M.from_pretrained('{0}').save_pretrained('{0}')\"",
        folder.string(), other));
  }
  return Status::ok();
}

}  // namespace

namespace {

/// The base's folder, as an adapter's config names it.
Result<std::string> find_base(const std::string& adapter, const std::string& base) {
  std::error_code ignored;
  for (const fs::path& place : {fs::path(base), fs::path(adapter) / base}) {
    if (!base.empty() && fs::is_directory(place, ignored)) return place.string();
  }
  std::string config = adapter + "/" + kAdapterConfigFile;
  if (is_hub_name(base)) {
    std::string folder = base.substr(base.find('/') + 1);
    return not_found(fmt::format(
        "'{0}': the base '{1}' is no folder here, and nothing is downloaded by itself: run "
        "`huggingface-cli download {1} --local-dir {2}`, and set base_model_name_or_path to that "
        "folder, or train with model.path = \"{2}\" and model.lora = {{path = \"{3}\"}}",
        config, base, folder, adapter));
  }
  return not_found(
      fmt::format("'{}': base_model_name_or_path is '{}', expected the folder of the base; set it",
                  config, base));
}

Result<ModelSource> resolve_adapter(const std::string& folder) {
  STAGECOACH_ASSIGN_OR_RETURN(AdapterConfig config, read_adapter_config(folder));
  STAGECOACH_ASSIGN_OR_RETURN(std::string base, find_base(folder, config.base));
  if (is_adapter_folder(base)) {
    return unimplemented(fmt::format(
        "'{}/{}': the base '{}' is an adapter itself; merge it first (export --merge-lora)", folder,
        kAdapterConfigFile, base));
  }
  STAGECOACH_ASSIGN_OR_RETURN(ModelSource source, resolve_model(base));
  STAGECOACH_RETURN_IF_ERROR(check_has_weights(source, true));
  STAGECOACH_RETURN_IF_ERROR(add_adapter(folder, source));
  source.name = folder;
  return source;
}

}  // namespace

Result<ModelSource> resolve_model(const std::string& model) {
  if (is_adapter_folder(model)) return resolve_adapter(model);
  STAGECOACH_ASSIGN_OR_RETURN(ModelPlace place, find_model(model));
  ModelSource source;
  source.name = model;
  if (place.config.empty()) {
    STAGECOACH_RETURN_IF_ERROR(take_config(model_preset(model), source));
    return source;
  }
  STAGECOACH_RETURN_IF_ERROR(take_config(parse_model_file(place.config), source));
  if (!place.folder.empty()) STAGECOACH_RETURN_IF_ERROR(find_weights(place.folder, source));
  return source;
}

namespace {

ShapeSource shape_of(ModelSource source) {
  ShapeSource shape;
  shape.architecture = source.architecture();
  shape.model = std::move(source.model);
  shape.lora = std::move(source.lora);
  shape.adapter_folder = std::move(source.adapter_folder);
  shape.name = std::move(source.name);
  shape.weights_folder = std::move(source.weights_folder);
  shape.defaulted = std::move(source.defaulted);
  shape.ignored = std::move(source.ignored);
  shape.notes = std::move(source.notes);
  return shape;
}

}  // namespace

Result<ShapeSource> resolve_shape(const std::string& model) {
  if (is_adapter_folder(model)) {
    STAGECOACH_ASSIGN_OR_RETURN(ModelSource adapted, resolve_adapter(model));
    return shape_of(std::move(adapted));
  }
  STAGECOACH_ASSIGN_OR_RETURN(ModelPlace place, find_model(model));
  ShapeSource source;
  source.name = model;
  auto note_computed = [&source](Result<ParsedModel> parsed) {
    if (parsed.is_ok()) {
      source.model = std::move(parsed->model);
      source.defaulted = std::move(parsed->defaulted);
      source.ignored = std::move(parsed->ignored);
    } else {
      source.refusal = parsed.status().message();
    }
  };
  if (place.config.empty()) {
    STAGECOACH_ASSIGN_OR_RETURN(source.architecture, architecture_preset(model));
    note_computed(model_preset(model));
    return source;
  }
  // What cannot be trained for damaged files is not planned either.
  if (!place.folder.empty() && has_weight_files(place.folder)) {
    source.weights_folder = place.folder.string();
    STAGECOACH_RETURN_IF_FAILED(WeightFolder::open(source.weights_folder));
  }
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(place.config));
  STAGECOACH_ASSIGN_OR_RETURN(ParsedArchitecture parsed, parse_architecture(text, place.config));
  source.architecture = std::move(parsed.architecture);
  source.defaulted = std::move(parsed.defaulted);
  note_computed(parse_model(text, place.config));
  return source;
}

bool is_transposed(const ModelSource& source) {
  return std::holds_alternative<Gpt2Config>(source.model);
}

Status add_adapter(const std::string& folder, ModelSource& source) {
  STAGECOACH_ASSIGN_OR_RETURN(AdapterConfig config, read_adapter_config(folder));
  if (config.is_transposed != is_transposed(source)) {
    return invalid_argument(fmt::format(
        "'{}/{}': fan_in_fan_out is {}, expected {} for matrices of {}; was it made for this base?",
        folder, kAdapterConfigFile, config.is_transposed, is_transposed(source),
        model_family_name(source.architecture().family)));
  }
  source.lora = std::move(config.lora);
  source.adapter_folder = folder;
  source.base_path = source.weights_folder;
  source.notes = std::move(config.notes);
  return Status::ok();
}

Result<std::string> base_sha256(const ModelSource& source) {
  constexpr ByteCount kFirstBytes = 256;
  STAGECOACH_ASSIGN_OR_RETURN(WeightFolder weights, WeightFolder::open(source.weights_folder));
  Sha256 digest;
  auto add = [&digest](const std::string& text) {
    digest.update(text.data(), static_cast<ByteCount>(text.size()));
  };
  add(source.config_json.dump());
  for (const FolderTensor& tensor : weights.tensors()) {
    const SafetensorInfo& info = *tensor.info;
    add(fmt::format("\n{} {} {} ", info.name, safetensors_type_name(info.type),
                    format_shape(info.shape)));
    std::vector<std::byte> first(static_cast<size_t>(std::min(kFirstBytes, info.size)));
    STAGECOACH_RETURN_IF_ERROR(tensor.file->read(info, 0, first));
    digest.update(first.data(), static_cast<ByteCount>(first.size()));
  }
  return digest.hex();
}

Status check_has_weights(const ModelSource& source, bool has_adapters) {
  if (!source.weights_folder.empty()) return Status::ok();
  return failed_precondition(fmt::format(
      "model '{}' has no weights (model.safetensors); {}", source.name,
      has_adapters ? "adapters add to weights that were trained: name a folder that has them"
                   : "name a folder that has them, or train without: model.init = \"random\""));
}

}  // namespace stagecoach
