#include "train/model_export.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <set>
#include <unistd.h>

#include "core/digest.h"
#include "core/file.h"
#include "core/float_pieces.h"
#include "core/json.h"
#include "model/adapter_set.h"
#include "model/decoder_config.h"
#include "model/model_source.h"
#include "model/peft_adapter.h"
#include "model/weight_match.h"
#include "model/weight_transfer.h"
#include "train/checkpoint.h"
#include "train/interrupt.h"

namespace stagecoach {

namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "config.json";
/// How often a run may have begun from another's checkpoint.
constexpr int kMaxAncestors = 64;
/// What Hugging Face's tools read beside config.json and weights.
constexpr const char* kTokenizerFiles[] = {"added_tokens.json",
                                           "chat_template.jinja",
                                           "chat_template.json",
                                           "merges.txt",
                                           "spiece.model",
                                           "special_tokens_map.json",
                                           "tokenizer.json",
                                           "tokenizer.model",
                                           "tokenizer_config.json",
                                           "vocab.json",
                                           "vocab.txt"};
constexpr const char* kGenerationFile = "generation_config.json";

/// What the checkpoint's run began from.
struct Origin {
  std::string folder;                   ///< empty: there is none with these weights
  std::optional<Json> config;           ///< its config.json
  std::optional<WeightFolder> weights;  ///< headers of its weights
  std::string tokenizer_folder;
};

bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string text_at(const Json& config, std::string_view section, std::string_view key) {
  const Json* table = config.find(section);
  const Json* value = table == nullptr ? nullptr : table->find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

bool is_dtype_key(std::string_view key) {
  return key == "dtype" || key == "torch_dtype";
}

/// The first field in which `config` says another model than the checkpoint; empty: none. What one
/// of them leaves to its default is not compared.
std::string first_difference(const Json& config, const Json& checkpoint) {
  for (const auto& [key, value] : checkpoint.members()) {
    const Json* there = config.find(key);
    if (there == nullptr || there->is_null() || value.is_null()) continue;
    if (is_dtype_key(key) || key == "architectures" || there->dump() == value.dump()) continue;
    bool same_number =
        there->is_number() && value.is_number() && there->as_number() == value.as_number();
    if (!same_number) {
      return fmt::format("{} is {} there and {} in the checkpoint", key, there->dump(),
                         value.dump());
    }
  }
  return "";
}

/// Where the run of `record` got its model, past the checkpoints it went through.
std::string original_model(const CheckpointRecord& record) {
  if (const Json* base = record.adapter.find("base_model_name_or_path")) return base->as_string();
  std::string model = text_at(record.config, "model", "path");
  for (int i = 0; i < kMaxAncestors && is_there(model + "/trainer_state.json"); ++i) {
    std::vector<std::string> ignored;
    Result<std::optional<FoundCheckpoint>> found = find_checkpoint(model, &ignored);
    if (!found.is_ok() || !found->has_value()) break;
    model = text_at((*found)->record.config, "model", "path");
  }
  return model;
}

Result<Origin> find_origin(const CheckpointRecord& record, std::vector<std::string>& notes) {
  Origin origin;
  std::string tokenizer = text_at(record.config, "data", "tokenizer");
  if (tokenizer != "bytes" && is_there(tokenizer)) origin.tokenizer_folder = tokenizer;
  std::string model = original_model(record);
  std::error_code ignored;
  bool is_folder = fs::is_directory(model, ignored);
  std::string path = is_folder ? model + "/" + kConfigFile : model;
  if (!is_there(path)) {
    notes.push_back(fmt::format(
        "the trained model, '{}', is no folder here: config.json is the checkpoint's own, and no "
        "tokenizer files are copied",
        model));
    return origin;
  }
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
  Result<Json> config = Json::parse(text);
  if (!config.is_ok()) return config.status().with_context(path);
  if (std::string difference = first_difference(*config, record.model); !difference.empty()) {
    notes.push_back(fmt::format(
        "'{}' is not the model that was trained: {}; config.json is the checkpoint's own, and no "
        "tokenizer files are copied from there",
        path, difference));
    return origin;
  }
  origin.config = std::move(config).value();
  if (!is_folder) return origin;
  origin.folder = model;
  if (origin.tokenizer_folder.empty()) origin.tokenizer_folder = model;
  bool has_weights =
      is_there(model + "/" + kWeightsFile) || is_there(model + "/" + kWeightsIndexFile);
  if (!has_weights) return origin;
  Result<WeightFolder> weights = WeightFolder::open(model);
  if (weights.is_ok()) {
    origin.weights = std::move(weights).value();
  } else {
    notes.push_back(fmt::format("names and dtypes of weights are the checkpoint's own: {}",
                                weights.status().message()));
  }
  return origin;
}

SafetensorsType storage_of(DType dtype) {
  if (dtype == DType::kBF16) return SafetensorsType::kBF16;
  return dtype == DType::kF16 ? SafetensorsType::kF16 : SafetensorsType::kF32;
}

/// As config.json spells it.
const char* torch_name(SafetensorsType type) {
  if (type == SafetensorsType::kBF16) return "bfloat16";
  return type == SafetensorsType::kF16 ? "float16" : "float32";
}

Status check_not_interrupted() {
  if (!InterruptGuard::is_interrupted()) return Status::ok();
  return cancelled("the export was interrupted; nothing was written");
}

/// Ok when the weights are those that were saved, by the digest of `Trainer::weights_sha256`.
Status check_digest(const FoundCheckpoint& checkpoint, const WeightFolder& weights) {
  STAGECOACH_ASSIGN_OR_RETURN(ModelSource source, resolve_model(checkpoint.path));
  STAGECOACH_ASSIGN_OR_RETURN(Network network,
                              make_network(source.model, NetworkHead::kLoss, DType::kF32, 1));
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<WeightPart> parts, match_weights(weights, network));
  Sha256 digest;
  for (const WeightPart& part : parts) {
    Status read =
        for_each_float_piece(part.count, [&](int64_t first, std::span<float> piece) -> Status {
          STAGECOACH_RETURN_IF_ERROR(
              part.tensor->file->read_f32(*part.tensor->info, part.first + first, piece));
          digest.update(piece.data(), static_cast<ByteCount>(piece.size_bytes()));
          return check_not_interrupted();
        });
    if (!read.is_ok()) return read;
  }
  std::string found = digest.hex();
  if (found == checkpoint.record.weights_sha256) return Status::ok();
  return data_loss(fmt::format(
      "'{}': the sha256 of the weights is {}, but trainer_state.json says {}: the file was changed "
      "or damaged; use an older checkpoint",
      weights.path(), found, checkpoint.record.weights_sha256));
}

/// The adapters of a checkpoint, which are those that were saved.
Result<AdapterSet> load_adapter_set(const FoundCheckpoint& checkpoint) {
  STAGECOACH_ASSIGN_OR_RETURN(AdapterConfig config, read_adapter_config(checkpoint.path));
  STAGECOACH_ASSIGN_OR_RETURN(ParsedModel model,
                              parse_model(checkpoint.record.model.dump(), checkpoint.path));
  STAGECOACH_ASSIGN_OR_RETURN(
      Network network, make_network(model.model, NetworkHead::kLoss, DType::kF32, 1, config.lora));
  STAGECOACH_ASSIGN_OR_RETURN(AdapterSet set, AdapterSet::load(checkpoint.path, network,
                                                               config.lora, config.is_transposed));
  std::string found = set.sha256();
  if (found == checkpoint.record.weights_sha256) return set;
  return data_loss(fmt::format(
      "'{}/{}': the sha256 of the weights is {}, but trainer_state.json says {}: the file was "
      "changed or damaged; use an older checkpoint",
      checkpoint.path, kAdapterWeightsFile, found, checkpoint.record.weights_sha256));
}

/// One export, from a checkpoint that was found into a folder that nobody sees yet.
class Exporter {
 public:
  Exporter(const ExportOptions& options, const FoundCheckpoint& checkpoint, ExportReport& report)
      : options_(options), checkpoint_(checkpoint), report_(report) {}

  Status write(const std::string& folder) {
    notes_before_ = report_.notes.size();
    STAGECOACH_ASSIGN_OR_RETURN(origin_, find_origin(checkpoint_.record, report_.notes));
    if (!checkpoint_.record.adapter.is_null()) return write_adapters(folder);
    STAGECOACH_ASSIGN_OR_RETURN(WeightFolder weights, WeightFolder::open(checkpoint_.path));
    STAGECOACH_RETURN_IF_ERROR(check_digest(checkpoint_, weights));
    STAGECOACH_RETURN_IF_ERROR(make_folders(folder));
    STAGECOACH_RETURN_IF_ERROR(write_weights(folder, weights));
    STAGECOACH_RETURN_IF_ERROR(write_config(folder));
    return finish(folder);
  }

 private:
  Status finish(const std::string& folder) {
    STAGECOACH_RETURN_IF_ERROR(copy_files(folder));
    std::sort(report_.files.begin(), report_.files.end());
    return sync_folder(folder);
  }

  /// A folder of PEFT's, or the base with the adapters in it.
  Status write_adapters(const std::string& folder) {
    STAGECOACH_ASSIGN_OR_RETURN(AdapterSet adapters, load_adapter_set(checkpoint_));
    if (options_.merge_lora) {
      if (!origin_.weights) {
        bool is_told = report_.notes.size() > notes_before_;
        std::string why = is_told ? fmt::format(" ({})", report_.notes.back()) : "";
        return not_found(
            fmt::format("--merge-lora needs the base, '{}', with its weights{}: put it back there, "
                        "or leave the "
                        "option out and merge the adapter with PEFT",
                        original_model(checkpoint_.record), why));
      }
      STAGECOACH_ASSIGN_OR_RETURN(ModelSource base, resolve_model(origin_.folder));
      STAGECOACH_RETURN_IF_ERROR(check_base_of_adapters(checkpoint_.path, base));
      STAGECOACH_RETURN_IF_ERROR(make_folders(folder));
      STAGECOACH_RETURN_IF_ERROR(write_merged(folder, adapters));
      STAGECOACH_RETURN_IF_ERROR(write_config(folder));
      return finish(folder);
    }
    STAGECOACH_RETURN_IF_ERROR(make_folders(folder));
    SafetensorsType type = storage_of(options_.dtype.value_or(DType::kF32));
    std::vector<SafetensorsTensor> tensors = adapters.tensors(type);
    for (SafetensorsTensor& tensor : tensors) count(tensor);
    report_.dtype = torch_name(type);
    STAGECOACH_RETURN_IF_ERROR(
        write_safetensors(fmt::format("{}/{}", folder, kAdapterWeightsFile), std::move(tensors)));
    STAGECOACH_RETURN_IF_ERROR(
        write_file_atomically(fmt::format("{}/{}", folder, kAdapterConfigFile),
                              checkpoint_.record.adapter.dump(true) + "\n"));
    report_.files = {kAdapterConfigFile, kAdapterWeightsFile};
    return finish(folder);
  }

  /// The base's tensors under their names; products are added in fp32 and rounded once.
  Status write_merged(const std::string& folder, const AdapterSet& adapters) {
    const WeightFolder& base = *origin_.weights;
    STAGECOACH_ASSIGN_OR_RETURN(ModelSource source, resolve_model(origin_.folder));
    STAGECOACH_ASSIGN_OR_RETURN(Network network,
                                make_network(source.model, NetworkHead::kLoss, DType::kF32, 1));
    STAGECOACH_ASSIGN_OR_RETURN(std::vector<WeightPart> parts, match_weights(base, network));
    std::map<std::string, std::string> adapted;  // by the name in the file
    for (const std::string& name : adapters.adapted()) {
      adapted[file_name_of(name, naming_of(base))] = name;
    }
    std::set<const FolderTensor*> seen;
    std::vector<SafetensorsTensor> tensors;
    for (const WeightPart& part : parts) {
      if (part.scales != nullptr) {
        return unimplemented(fmt::format(
            "--merge-lora: tensor '{}' of '{}' is packed as MXFP4, and this version writes none: "
            "export the adapter without the option",
            part.tensor->info->name, base.path()));
      }
      if (!seen.insert(part.tensor).second) continue;
      auto module = adapted.find(part.tensor->info->name);
      std::string name = module == adapted.end() ? "" : module->second;
      tensors.push_back(merged_tensor(*part.tensor, adapters, name));
      if (module != adapted.end()) adapted.erase(module);
    }
    if (!adapted.empty()) {
      return data_loss(fmt::format("'{}' has no tensor '{}', which has adapters", base.path(),
                                   adapted.begin()->first));
    }
    return write_tensors(folder, std::move(tensors));
  }

  SafetensorsTensor merged_tensor(const FolderTensor& tensor, const AdapterSet& adapters,
                                  const std::string& adapted) {
    SafetensorsTensor out;
    out.name = tensor.info->name;
    out.type = options_.dtype ? storage_of(*options_.dtype) : tensor.info->type;
    out.shape = tensor.info->shape;
    out.read_f32 = [&tensor, &adapters, adapted](int64_t first, std::span<float> piece) -> Status {
      STAGECOACH_RETURN_IF_ERROR(tensor.file->read_f32(*tensor.info, first, piece));
      if (!adapted.empty()) adapters.add_to(adapted, first, piece);
      return Status::ok();
    };
    return out;
  }

  /// Makes a tensor count as it is written, and stop when that is wanted.
  void count(SafetensorsTensor& tensor) {
    ByteCount size = tensor.size_bytes();
    total_ += size / safetensors_type_size(tensor.type);
    report_.weight_bytes += size;
    tensor.read_f32 = [this, read = std::move(tensor.read_f32)](int64_t first,
                                                                std::span<float> piece) -> Status {
      STAGECOACH_RETURN_IF_ERROR(read(first, piece));
      done_ += static_cast<int64_t>(piece.size());
      if (options_.progress) options_.progress(done_, total_);
      return check_not_interrupted();
    };
  }

  Status write_tensors(const std::string& folder, std::vector<SafetensorsTensor> tensors) {
    ByteCount bytes_of[3] = {};
    for (SafetensorsTensor& tensor : tensors) {
      count(tensor);
      bytes_of[static_cast<size_t>(tensor.type)] += tensor.size_bytes();
    }
    auto most = std::max_element(std::begin(bytes_of), std::end(bytes_of)) - std::begin(bytes_of);
    report_.dtype = torch_name(static_cast<SafetensorsType>(most));
    WeightFolderOptions sizes;
    sizes.max_file_bytes = options_.max_file_bytes.value_or(sizes.max_file_bytes);
    STAGECOACH_ASSIGN_OR_RETURN(report_.files,
                                write_weight_folder(folder, std::move(tensors), sizes));
    return Status::ok();
  }

  /// Of models whose experts may come either way, all tools read them one by one; GPT-OSS's are
  /// stacked in every file.
  bool keeps_stacks() const {
    const Json* type = checkpoint_.record.model.find("model_type");
    bool is_gpt_oss = type != nullptr && type->is_string() &&
                      type->as_string() == model_family_name(ModelFamily::kGptOss);
    return is_gpt_oss || (origin_.weights && stacks_experts(*origin_.weights));
  }

  Status write_weights(const std::string& folder, const WeightFolder& weights) {
    WeightNaming naming = origin_.weights ? naming_of(*origin_.weights) : WeightNaming::kPrefixed;
    std::vector<SafetensorsTensor> tensors;
    for (const FolderTensor& tensor : weights.tensors()) {
      std::string name = file_name_of(tensor.info->name, naming);
      std::vector<ExpertTensor> parts;
      if (!keeps_stacks()) parts = experts_one_by_one(name, tensor.info->shape);
      if (parts.empty()) parts.push_back({name, tensor.info->shape, 0});
      for (ExpertTensor& part : parts) tensors.push_back(part_of(tensor, std::move(part)));
    }
    return write_tensors(folder, std::move(tensors));
  }

  SafetensorsTensor part_of(const FolderTensor& tensor, ExpertTensor part) const {
    SafetensorsTensor out;
    out.name = std::move(part.name);
    out.type = type_of(out.name);
    out.shape = std::move(part.shape);
    out.read_f32 = [&tensor, start = part.first](int64_t first, std::span<float> piece) {
      return tensor.file->read_f32(*tensor.info, start + first, piece);
    };
    return out;
  }

  SafetensorsType type_of(const std::string& name) const {
    if (options_.dtype.has_value()) return storage_of(*options_.dtype);
    if (!origin_.weights.has_value()) return SafetensorsType::kF32;
    const FolderTensor* original = origin_.weights->find(name);
    if (original != nullptr) return original->info->type;
    // What the original has under another name has the dtype of its others.
    for (const FolderTensor& other : origin_.weights->tensors()) {
      if (is_float(other.info->type)) return other.info->type;
    }
    return SafetensorsType::kF32;
  }

  Status write_config(const std::string& folder) {
    Json config = origin_.config.value_or(checkpoint_.record.model);
    const Json* architectures = checkpoint_.record.model.find("architectures");
    if (config.find("architectures") == nullptr && architectures != nullptr) {
      config["architectures"] = *architectures;
    }
    if (config.find("quantization_config") != nullptr) {
      config = beside_plain_weights(config);
      report_.notes.push_back(fmt::format(
          "the weights are written as plain {}, so config.json has no quantization_config",
          report_.dtype));
    }
    // Readers from before version 5 of transformers know the first name, later ones the second.
    config["torch_dtype"] = report_.dtype;
    config["dtype"] = report_.dtype;
    report_.files.emplace_back(kConfigFile);
    return write_file_atomically(folder + "/" + kConfigFile, config.dump(true) + "\n");
  }

  Status copy_files(const std::string& folder) {
    bool has_tokenizer = false;
    for (const char* name : kTokenizerFiles) {
      if (origin_.tokenizer_folder.empty()) break;
      STAGECOACH_ASSIGN_OR_RETURN(bool copied, copy(origin_.tokenizer_folder, name, folder));
      has_tokenizer = has_tokenizer || copied;
    }
    if (!has_tokenizer && !origin_.tokenizer_folder.empty()) {
      report_.notes.push_back(fmt::format("'{}' has no tokenizer files", origin_.tokenizer_folder));
    }
    if (origin_.folder.empty()) return Status::ok();
    return copy(origin_.folder, kGenerationFile, folder).status();
  }

  /// Whether there was such a file.
  Result<bool> copy(const std::string& from, const char* name, const std::string& to) {
    std::string source = from + "/" + name;
    if (!is_there(source)) return false;
    STAGECOACH_ASSIGN_OR_RETURN(std::string content, read_file(source));
    STAGECOACH_RETURN_IF_ERROR(write_file_atomically(to + "/" + name, content));
    report_.files.emplace_back(name);
    return true;
  }

  const ExportOptions& options_;
  const FoundCheckpoint& checkpoint_;
  ExportReport& report_;
  Origin origin_;
  size_t notes_before_ = 0;  ///< of where the model came from
  int64_t done_ = 0;
  int64_t total_ = 0;
};

/// Refuses a folder that holds anything; nothing that exists is ever replaced.
Status check_out(const std::string& out) {
  std::error_code error;
  fs::file_status there = fs::status(out, error);
  if (!fs::exists(there)) return Status::ok();
  if (!fs::is_directory(there)) {
    return invalid_argument(
        fmt::format("--out is '{}', which is a file; name a folder that is new or empty", out));
  }
  if (fs::is_empty(out, error) && !error) return Status::ok();
  return invalid_argument(
      fmt::format("--out is '{}', which is not empty; name a folder that is new or empty", out));
}

/// Where an export by `process` into `out` writes until it is whole.
std::string unfinished_folder(const fs::path& out, const std::string& process) {
  return fmt::format("{}/.{}.{}.tmp", out.parent_path().string(), out.filename().string(), process);
}

/// Removes what exports into `out` left whose processes were killed.
void remove_abandoned(const fs::path& out, std::vector<std::string>& notes) {
  std::vector<fs::path> abandoned;
  std::error_code error;
  for (fs::directory_iterator it(out.parent_path(), error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    std::string before = fmt::format(".{}.", out.filename().string());
    if (!name.starts_with(before) || !name.ends_with(".tmp")) continue;
    pid_t process = 0;
    const char* digits = name.data() + before.size();
    auto [next, failure] = std::from_chars(digits, name.data() + name.size(), process);
    if (failure != std::errc() || process <= 0) continue;
    if (it->path() != unfinished_folder(out, std::to_string(process))) continue;
    bool is_gone = ::kill(process, 0) != 0 && errno == ESRCH;
    if (is_gone && fs::is_directory(it->symlink_status(error))) abandoned.push_back(it->path());
  }
  for (const fs::path& path : abandoned) {
    fs::remove_all(path, error);
    notes.push_back(
        fmt::format("removed '{}', which an export left that was killed", path.string()));
  }
}

/// Moves `from` to `to`, which does not exist or is an empty folder.
Status publish(const std::string& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return io_error(
        fmt::format("cannot rename '{}' to '{}': {}", from, to.string(), std::strerror(errno)));
  }
  return sync_folder(to.parent_path().string());
}

}  // namespace

Result<ExportReport> export_checkpoint(const ExportOptions& options) {
  ExportReport report;
  STAGECOACH_RETURN_IF_ERROR(check_out(options.out));
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<FoundCheckpoint> found,
                              find_checkpoint(options.checkpoint, &report.notes));
  if (!found.has_value()) {
    bool is_adapter = is_adapter_folder(options.checkpoint);
    return not_found(fmt::format(
        "there is no checkpoint in '{}'{}; name a run's output.dir or a checkpoint-N in it",
        options.checkpoint, is_adapter ? ", which is an adapter's folder as PEFT has it" : ""));
  }
  if (options.merge_lora && found->record.adapter.is_null()) {
    return invalid_argument(fmt::format(
        "--merge-lora: the checkpoint '{}' holds no adapters; leave the option out", found->path));
  }
  bool is_one_file = !found->record.adapter.is_null() && !options.merge_lora;
  if (options.max_file_bytes && is_one_file) {
    return invalid_argument(
        "--max-shard-size: adapters are one file; leave the option out, or add --merge-lora");
  }
  report.checkpoint = found->path;
  report.iteration = found->record.iteration;
  std::error_code ignored;
  fs::path out = fs::weakly_canonical(fs::absolute(options.out), ignored).lexically_normal();
  if (out.filename().empty()) out = out.parent_path();
  remove_abandoned(out, report.notes);
  std::string unfinished = unfinished_folder(out, std::to_string(::getpid()));
  Status status = Exporter(options, *found, report).write(unfinished);
  if (status.is_ok()) status = publish(unfinished, out);
  if (status.is_ok()) return report;
  fs::remove_all(unfinished, ignored);
  if (status.code() != StatusCode::kResourceExhausted) return status;
  return io_error(
      fmt::format("{}; the export needs {} bytes and more", status.message(), report.weight_bytes));
}

}  // namespace stagecoach
