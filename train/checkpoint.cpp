#include "train/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <map>
#include <sys/statvfs.h>
#include <system_error>
#include <unistd.h>

#include "core/file.h"
#include "model/config_fields.h"
#include "model/peft_adapter.h"
#include "model/weight_transfer.h"
#include "train/checkpoint_tensors.h"

namespace stagecoach {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kFormatVersion = 1;
constexpr std::string_view kFolderPrefix = "checkpoint-";
constexpr std::string_view kUnfinishedPrefix = ".checkpoint-";
/// Random numbers are keyed by 32 bits of it.
constexpr int64_t kMaxIteration = int64_t{1} << 31;
constexpr std::string_view kUnfinishedSuffix = ".tmp";
constexpr const char* kLink = "checkpoint";
constexpr const char* kStateFile = "trainer_state.json";
/// Every file but the state file, which lists those that are there with their sizes.
constexpr const char* kListedFiles[] = {"config.json", "model.safetensors", kMomentsFile,
                                        kPreviousFile, kAdapterConfigFile,  kAdapterWeightsFile};
/// Bytes a tensor's entry takes in a header, and those of the small files.
constexpr ByteCount kHeaderBytesPerTensor = 256;
constexpr ByteCount kSmallFilesBytes = 64 * kKiB;

/// Iteration of a folder name "checkpoint-<iteration>".
std::optional<int64_t> iteration_of(const std::string& name) {
  if (!name.starts_with(kFolderPrefix)) return std::nullopt;
  const char* begin = name.data() + kFolderPrefix.size();
  const char* end = name.data() + name.size();
  int64_t iteration = 0;
  auto [next, error] = std::from_chars(begin, end, iteration);
  if (error != std::errc() || next != end || begin == end) return std::nullopt;
  return iteration;
}

std::string folder_of(const std::string& run_folder, int64_t iteration) {
  return fmt::format("{}/{}{}", run_folder, kFolderPrefix, iteration);
}

std::string unfinished_folder_of(const std::string& run_folder, int64_t iteration) {
  return fmt::format("{}/{}{}{}", run_folder, kUnfinishedPrefix, iteration, kUnfinishedSuffix);
}

/// Folders "checkpoint-<iteration>" of a run, newest first.
std::vector<std::pair<int64_t, std::string>> list_folders(const std::string& run_folder) {
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator it(run_folder, error), end; !error && it != end;
       it.increment(error)) {
    std::optional<int64_t> iteration = iteration_of(it->path().filename().string());
    if (iteration.has_value()) found.emplace_back(*iteration, it->path().string());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

std::string dtype_of(const CheckpointRecord& record) {
  const Json* model = record.config.find("model");
  const Json* dtype = model == nullptr ? nullptr : model->find("dtype");
  return dtype != nullptr && dtype->is_string() ? dtype->as_string() : "";
}

Json record_to_json(const CheckpointRecord& record, const std::string& folder) {
  Json json = Json::object();
  json["format_version"] = kFormatVersion;
  json["iteration"] = record.iteration;
  json["loss_first"] = record.loss_first;
  json["loss_last"] = record.loss_last;
  json["data_digest"] = record.data_digest;
  json["tokenizer"] = record.tokenizer;
  json["targets"] = record.targets;
  json["weights_sha256"] = record.weights_sha256;
  json["moments_sha256"] = record.moments_sha256;
  if (!record.previous_sha256.empty()) json["previous_sha256"] = record.previous_sha256;
  if (dtype_of(record) == "fp16") {
    json["loss_scale"]["value"] = record.loss_scale.value;
    json["loss_scale"]["good_steps"] = record.loss_scale.good_steps;
    json["loss_scale"]["skipped_steps"] = record.loss_scale.skipped_steps;
    json["loss_scale"]["previous_value"] = record.previous_loss_scale;
  }
  json["config"] = record.config;
  json["model"] = record.model;
  if (!record.adapter.is_null()) {
    json["adapter"] = record.adapter;
    json["base_sha256"] = record.base_sha256;
  }
  for (const char* file : kListedFiles) {
    std::error_code ignored;
    if (!fs::exists(folder + "/" + file, ignored)) continue;
    json["files"][file] = static_cast<int64_t>(fs::file_size(folder + "/" + file, ignored));
  }
  return json;
}

bool has(const Json& json, const char* key, bool (Json::*is_type)() const) {
  const Json* member = json.find(key);
  return member != nullptr && (member->*is_type)();
}

/// Of fp16 alone; without it a run would go on with other numbers.
Status read_loss_scale(const Json& json, const std::string& path, CheckpointRecord& record) {
  if (dtype_of(record) != "fp16") return Status::ok();
  const Json* scale = json.find("loss_scale");
  bool complete = scale != nullptr && scale->is_object() &&
                  has(*scale, "value", &Json::is_number) &&
                  has(*scale, "good_steps", &Json::is_integer) &&
                  has(*scale, "skipped_steps", &Json::is_integer);
  if (!complete) return data_loss(fmt::format("{}: loss_scale is missing or not whole", path));
  record.loss_scale = {scale->find("value")->as_number(), scale->find("good_steps")->as_integer(),
                       scale->find("skipped_steps")->as_integer()};
  const LossScale& read = record.loss_scale;
  // Versions before this key went on with the newest.
  record.previous_loss_scale = has(*scale, "previous_value", &Json::is_number)
                                   ? scale->find("previous_value")->as_number()
                                   : read.value;
  bool possible = read.value >= kLeastLossScale && read.good_steps >= 0 &&
                  record.previous_loss_scale >= kLeastLossScale && read.skipped_steps >= 0 &&
                  read.skipped_steps <= record.iteration;
  if (possible) return Status::ok();
  return data_loss(fmt::format("{}: loss_scale is {} after {} good steps and {} skipped ones of {}",
                               path, read.value, read.good_steps, read.skipped_steps,
                               record.iteration));
}

/// Reads trainer_state.json and compares the files it lists. The error says what is wrong.
Result<CheckpointRecord> read_record(const std::string& folder) {
  std::string path = folder + "/" + kStateFile;
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
  Result<Json> parsed = Json::parse(text);
  if (!parsed.is_ok()) return parsed.status().with_context(path);
  const Json& json = *parsed;
  bool complete =
      has(json, "format_version", &Json::is_integer) && has(json, "iteration", &Json::is_integer) &&
      has(json, "data_digest", &Json::is_string) && has(json, "weights_sha256", &Json::is_string) &&
      has(json, "moments_sha256", &Json::is_string) && has(json, "config", &Json::is_object) &&
      has(json, "model", &Json::is_object) && has(json, "files", &Json::is_object);
  if (!complete) return data_loss(fmt::format("{}: keys are missing", path));
  if (json.find("format_version")->as_integer() != kFormatVersion) {
    return unimplemented(fmt::format("{}: format_version is {}; this version reads {}", path,
                                     json.find("format_version")->dump(), kFormatVersion));
  }
  for (const auto& [file, size] : json.find("files")->members()) {
    std::error_code error;
    std::string place = folder + "/" + file;
    uintmax_t found = fs::file_size(place, error);
    if (error) return data_loss(fmt::format("{} is missing", place));
    if (::access(place.c_str(), R_OK) != 0) {
      return data_loss(fmt::format("{} cannot be read: {}", place, std::strerror(errno)));
    }
    if (!size.is_integer() || static_cast<uintmax_t>(size.as_integer()) != found) {
      return data_loss(fmt::format("{}/{} holds {} bytes of {}", folder, file, found, size.dump()));
    }
  }
  CheckpointRecord record;
  record.iteration = json.find("iteration")->as_integer();
  // The data position follows from it, so a wrong number would train on the wrong text unnoticed.
  std::optional<int64_t> named = iteration_of(fs::path(folder).filename().string());
  if (record.iteration < 1 || record.iteration > kMaxIteration ||
      (named.has_value() && *named != record.iteration)) {
    return data_loss(fmt::format("{}: iteration is {}; it must be {}", path, record.iteration,
                                 named.has_value()
                                     ? fmt::format("{}, as in the folder's name", *named)
                                     : fmt::format("1 to {}", kMaxIteration)));
  }
  record.config = *json.find("config");
  record.model = *json.find("model");
  if (has(json, "adapter", &Json::is_object)) {
    if (!has(json, "base_sha256", &Json::is_string)) {
      return data_loss(fmt::format("{}: base_sha256 is missing", path));
    }
    record.adapter = *json.find("adapter");
    record.base_sha256 = json.find("base_sha256")->as_string();
  }
  STAGECOACH_RETURN_IF_ERROR(read_loss_scale(json, path, record));
  record.data_digest = json.find("data_digest")->as_string();
  if (has(json, "tokenizer", &Json::is_string)) {
    record.tokenizer = json.find("tokenizer")->as_string();
  }
  if (has(json, "targets", &Json::is_integer)) {
    record.targets = json.find("targets")->as_integer();
  }
  record.weights_sha256 = json.find("weights_sha256")->as_string();
  record.moments_sha256 = json.find("moments_sha256")->as_string();
  if (has(json, "previous_sha256", &Json::is_string)) {
    record.previous_sha256 = json.find("previous_sha256")->as_string();
  }
  if (has(json, "loss_first", &Json::is_number)) {
    record.loss_first = json.find("loss_first")->as_number();
  }
  if (has(json, "loss_last", &Json::is_number)) {
    record.loss_last = json.find("loss_last")->as_number();
  }
  return record;
}

Status rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return Status::ok();
  return io_error(fmt::format("cannot rename '{}' to '{}': {}", from, to, std::strerror(errno)));
}

/// Makes RUN/checkpoint a link to the newest checkpoint; replaced by a rename, so it always points
/// to a whole one.
Status point_link(const std::string& run_folder, const std::string& target_name) {
  std::string temporary = fmt::format("{}/.{}-link{}", run_folder, kLink, kUnfinishedSuffix);
  ::unlink(temporary.c_str());
  if (::symlink(target_name.c_str(), temporary.c_str()) != 0) {
    return io_error(
        fmt::format("cannot create the link '{}': {}", temporary, std::strerror(errno)));
  }
  std::string link = fmt::format("{}/{}", run_folder, kLink);
  if (Status moved = rename_path(temporary, link); !moved.is_ok()) {
    ::unlink(temporary.c_str());
    std::error_code ignored;
    if (!fs::is_directory(fs::symlink_status(link, ignored))) return moved;
    return io_error(
        fmt::format("'{}' is a folder where the link to the newest checkpoint was; '{}/{}' is "
                    "whole: move the folder away and run the same command again",
                    link, run_folder, target_name));
  }
  return sync_folder(run_folder);
}

void remove_folder(const std::string& run_folder, int64_t iteration, const std::string& path) {
  // Renamed first: a crash in the middle must not leave a folder that looks like a checkpoint.
  std::string condemned = unfinished_folder_of(run_folder, iteration);
  std::error_code ignored;
  fs::remove_all(condemned, ignored);
  fs::rename(path, condemned, ignored);
  fs::remove_all(condemned, ignored);
}

/// Whether a run wrote `path`, whole or since damaged: a folder of nothing but files of ours, those
/// that only we write among them. Nothing else is ever deleted or replaced.
bool is_ours(const std::string& path) {
  bool has_own = false;
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(path, error))) return false;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    bool is_state = name == kStateFile;
    bool is_listed =
        std::find(std::begin(kListedFiles), std::end(kListedFiles), name) != std::end(kListedFiles);
    std::error_code ignored;
    if (!(is_state || is_listed) || !fs::is_regular_file(it->symlink_status(ignored))) return false;
    has_own = has_own || is_state || name == kMomentsFile;
  }
  return !error && has_own;
}

void prune(const std::string& run_folder, int64_t keep_last) {
  int64_t kept = 0;
  for (const auto& [iteration, path] : list_folders(run_folder)) {
    if (is_ours(path) && ++kept > keep_last) remove_folder(run_folder, iteration, path);
  }
}

Status describe_save_failure(const Status& status, const std::string& run_folder,
                             ByteCount needed) {
  std::error_code ignored;
  std::string previous = fs::exists(run_folder + "/" + kLink, ignored)
                             ? "the previous checkpoint is intact"
                             : "there is no earlier checkpoint";
  std::string room;
  if (status.code() == StatusCode::kResourceExhausted) {
    room = fmt::format(
        "; a checkpoint needs {} bytes: free that much there, or set output.dir "
        "to a file system that has it",
        needed);
  }
  return io_error(
      fmt::format("cannot save a checkpoint: {}{}; {}", status.message(), room, previous));
}

}  // namespace

ByteCount checkpoint_bytes(const Trainer& trainer) {
  const Network& network = trainer.network();
  const MomentOptions& moments = trainer.moments();
  ByteCount tensors = 0;
  for (const ParameterBlock& block : network.blocks) {
    if (!block.is_frozen) tensors += static_cast<ByteCount>(block.parameters.size());
  }
  double kept =
      static_cast<double>(sizeof(float)) + moments.count * moment_bytes_per_element(moments.format);
  if (trainer.keeps_previous()) kept += static_cast<double>(dtype_size_bytes(network.dtype));
  // Every tensor's last scale may be of few elements.
  ByteCount scales = tensors * moments.count * ByteCount{sizeof(float)};
  ByteCount headers = (2 + 2 * moments.count) * tensors * kHeaderBytesPerTensor;
  return static_cast<ByteCount>(static_cast<double>(network.trained_parameter_count()) * kept) +
         scales + headers + kSmallFilesBytes;
}

Status check_free_space(const std::string& folder, ByteCount needed) {
  fs::path place = fs::absolute(folder);
  std::error_code ignored;
  while (!fs::exists(place, ignored) && place.has_parent_path() && place != place.parent_path()) {
    place = place.parent_path();
  }
  struct statvfs info = {};
  // A file system that does not tell is found out when writing.
  if (::statvfs(place.c_str(), &info) != 0) return Status::ok();
  auto available = static_cast<ByteCount>(info.f_bavail) * static_cast<ByteCount>(info.f_frsize);
  if (available >= needed) return Status::ok();
  return io_error(
      fmt::format("'{}' has {} bytes free; checkpoints need {} bytes: free that much, or set "
                  "output.dir to a file system that has it",
                  place.string(), available, needed));
}

Status check_checkpoint_places(const std::string& run_folder, int64_t first, int64_t last) {
  std::string link = run_folder + "/" + kLink;
  std::error_code ignored;
  fs::file_status there = fs::symlink_status(link, ignored);
  std::string in_the_way = fs::exists(there) && !fs::is_symlink(there) ? link : "";
  for (const auto& [iteration, path] : list_folders(run_folder)) {
    if (iteration < first || iteration > last) continue;
    if (!is_ours(path) && !read_record(path).is_ok()) in_the_way = path;
  }
  if (in_the_way.empty()) return Status::ok();
  return io_error(fmt::format(
      "'{}' is where checkpoints of this run will be saved, and is none; move it away, or set "
      "output.dir to another folder",
      in_the_way));
}

CheckpointSave::CheckpointSave(std::string run_folder, CheckpointRecord record, Trainer& trainer)
    : run_folder_(std::move(run_folder)),
      unfinished_(unfinished_folder_of(run_folder_, record.iteration)),
      record_(std::move(record)),
      trainer_(trainer),
      needed_(checkpoint_bytes(trainer)) {}

CheckpointSave::~CheckpointSave() {
  if (!writer_) return;
  writer_.reset();
  std::error_code ignored;
  fs::remove_all(unfinished_, ignored);
}

Result<std::unique_ptr<CheckpointSave>> CheckpointSave::begin(const std::string& run_folder,
                                                              CheckpointRecord record,
                                                              Trainer& trainer, SaveCopies copies) {
  std::unique_ptr<CheckpointSave> save(new CheckpointSave(run_folder, std::move(record), trainer));
  std::string folder = folder_of(run_folder, save->iteration());
  std::error_code ignored;
  if (fs::exists(folder, ignored)) {
    if (read_record(folder).is_ok()) return save;
    if (!is_ours(folder)) {
      return io_error(fmt::format(
          "cannot save a checkpoint: '{}' is in the way and is not one; move it away", folder));
    }
    remove_folder(run_folder, save->iteration(), folder);
  }
  fs::remove_all(save->unfinished_, ignored);
  auto open = [&]() -> Status {
    STAGECOACH_RETURN_IF_ERROR(check_free_space(run_folder, save->needed_));
    STAGECOACH_RETURN_IF_ERROR(make_folders(save->unfinished_));
    STAGECOACH_ASSIGN_OR_RETURN(save->writer_,
                                StateWriter::create(save->unfinished_, trainer, std::move(copies)));
    return Status::ok();
  };
  if (Status status = open(); !status.is_ok()) {
    fs::remove_all(save->unfinished_, ignored);
    return describe_save_failure(status, run_folder, save->needed_);
  }
  STAGECOACH_RETURN_IF_ERROR(trainer.begin_reading(save->writer_));
  save->record_.loss_scale = trainer.loss_scale();
  save->record_.previous_loss_scale = trainer.previous_loss_scale();
  return save;
}

bool CheckpointSave::is_done() const {
  return !writer_ || writer_->is_done();
}

/// Ends the folder and gives it its name.
Status CheckpointSave::write() {
  STAGECOACH_ASSIGN_OR_RETURN(StateDigests digests, writer_->wait());
  record_.weights_sha256 = std::move(digests.weights);
  record_.moments_sha256 = std::move(digests.moments);
  record_.previous_sha256 = std::move(digests.previous);
  STAGECOACH_RETURN_IF_ERROR(
      write_file_atomically(unfinished_ + "/config.json", record_.model.dump(true) + "\n"));
  if (!record_.adapter.is_null()) {
    STAGECOACH_RETURN_IF_ERROR(write_file_atomically(
        fmt::format("{}/{}", unfinished_, kAdapterConfigFile), record_.adapter.dump(true) + "\n"));
  }
  STAGECOACH_RETURN_IF_ERROR(
      write_file_atomically(fmt::format("{}/{}", unfinished_, kStateFile),
                            record_to_json(record_, unfinished_).dump(true)));
  STAGECOACH_RETURN_IF_ERROR(sync_folder(unfinished_));
  STAGECOACH_RETURN_IF_ERROR(rename_path(unfinished_, folder_of(run_folder_, record_.iteration)));
  STAGECOACH_RETURN_IF_ERROR(sync_folder(run_folder_));
  return point_link(run_folder_, fmt::format("{}{}", kFolderPrefix, record_.iteration));
}

Status CheckpointSave::publish(int64_t keep_last) {
  if (!writer_) return Status::ok();
  if (!writer_->is_done()) STAGECOACH_RETURN_IF_ERROR(trainer_.finish_reading());
  Status status = write();
  copied_bytes_ = writer_->copied_bytes();
  writer_.reset();
  if (!status.is_ok()) {
    std::error_code ignored;
    fs::remove_all(unfinished_, ignored);
    return describe_save_failure(status, run_folder_, needed_);
  }
  prune(run_folder_, keep_last);
  return Status::ok();
}

Status save_checkpoint(const std::string& run_folder, const CheckpointRecord& record,
                       Trainer& trainer, int64_t keep_last) {
  STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<CheckpointSave> save,
                              CheckpointSave::begin(run_folder, record, trainer));
  return save->publish(keep_last);
}

Result<std::optional<FoundCheckpoint>> find_checkpoint(const std::string& folder,
                                                       std::vector<std::string>* notes) {
  std::error_code ignored;
  if (fs::exists(folder + "/" + kStateFile, ignored)) {
    STAGECOACH_ASSIGN_OR_RETURN(CheckpointRecord record, read_record(folder));
    return std::optional(FoundCheckpoint{folder, std::move(record)});
  }
  std::string damaged;
  for (const auto& [iteration, path] : list_folders(folder)) {
    Result<CheckpointRecord> record = read_record(path);
    if (record.is_ok()) return std::optional(FoundCheckpoint{path, std::move(record).value()});
    // One that is whole but of another version must not be passed over: older work would win.
    if (record.status().code() == StatusCode::kUnimplemented) return record.status();
    if (is_ours(path)) damaged = record.status().message();
    notes->push_back(fmt::format("{} is not a whole checkpoint and is skipped: {}", path,
                                 record.status().message()));
  }
  // Starting over would write over what may still be rescued.
  if (!damaged.empty()) {
    return data_loss(fmt::format(
        "'{}' holds checkpoints, but none is whole: {}; move them away to start over, or "
        "set output.dir to another folder",
        folder, damaged));
  }
  return std::optional<FoundCheckpoint>();
}

void remove_unfinished_checkpoints(const std::string& run_folder) {
  remove_unfinished_files(run_folder);
  std::vector<fs::path> condemned;
  std::error_code error;
  for (fs::directory_iterator it(run_folder, error), end; !error && it != end;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    if (name.starts_with(kUnfinishedPrefix) && name.ends_with(kUnfinishedSuffix)) {
      condemned.push_back(it->path());
    }
  }
  for (const fs::path& path : condemned) fs::remove_all(path, error);
}

Status load_checkpoint(const FoundCheckpoint& checkpoint, Trainer& trainer) {
  auto write = [&trainer](int block, int64_t offset, std::span<const float> values) {
    return trainer.write_parameters(block, offset, values);
  };
  bool has_adapters = trainer.network().has_adapters();
  if (has_adapters) {
    STAGECOACH_RETURN_IF_ERROR(load_adapters(checkpoint.path, trainer.network(), write));
  } else {
    STAGECOACH_RETURN_IF_FAILED(load_weights(checkpoint.path, trainer.network(), write));
  }
  STAGECOACH_RETURN_IF_ERROR(load_moments(checkpoint.path, trainer));
  bool has_previous = trainer.keeps_previous() && !checkpoint.record.previous_sha256.empty();
  if (has_previous) STAGECOACH_RETURN_IF_ERROR(load_previous(checkpoint.path, trainer));
  trainer.set_iteration(checkpoint.record.iteration);
  const LossScale& scale = checkpoint.record.loss_scale;
  trainer.set_loss_scale(scale, has_previous ? checkpoint.record.previous_loss_scale : scale.value);
  auto check = [&](const char* file, const char* what, const std::string& found,
                   const std::string& expected) -> Status {
    if (found == expected) return Status::ok();
    return data_loss(
        fmt::format("{}/{}: the sha256 of the {} is {}, but {} says {}: the file was changed or "
                    "damaged; use an "
                    "older checkpoint",
                    checkpoint.path, file, what, found, kStateFile, expected));
  };
  STAGECOACH_RETURN_IF_ERROR(check(has_adapters ? kAdapterWeightsFile : kWeightsFile, "weights",
                                   trainer.weights_sha256(), checkpoint.record.weights_sha256));
  STAGECOACH_ASSIGN_OR_RETURN(std::string moments, moments_sha256(trainer));
  STAGECOACH_RETURN_IF_ERROR(
      check(kMomentsFile, "moments", moments, checkpoint.record.moments_sha256));
  if (!has_previous) return Status::ok();
  return check(kPreviousFile, "previous weights", previous_sha256(trainer),
               checkpoint.record.previous_sha256);
}

namespace {

/// A key that the writing version did not have means what is its default now.
std::string value_at(const Json& config, std::string_view section, std::string_view key) {
  static const Json kDefaults = train_config_to_json(TrainConfig{});
  for (const Json* from : {&config, &kDefaults}) {
    const Json* table = from->find(section);
    const Json* value = table == nullptr ? nullptr : table->find(key);
    if (value != nullptr) return value->dump();
  }
  return "absent";
}

/// `async` computes with other weights than the other modes, which are as good as each other.
void note_update_mode(const CheckpointRecord& record, const Json& here,
                      std::vector<std::string>* notes) {
  std::string old_value = value_at(record.config, "schedule", "update");
  std::string new_value = value_at(here, "schedule", "update");
  const std::string is_async = "\"async\"";
  if (new_value == is_async && record.previous_sha256.empty()) {
    notes->push_back(fmt::format(
        "the checkpoint (schedule.update = {}) holds no weights before the newest: the next step "
        "computes with the newest, as the first of a new async run does",
        old_value));
  } else if (old_value == is_async && new_value != is_async) {
    notes->push_back(fmt::format(
        "schedule.update was {} and is {} now: the next step computes with the newest weights, and "
        "results go on from here with other bits",
        old_value, new_value));
  }
}

/// Whether a key of [optimizer] says anything about what `kind` computes.
bool decides_bits(std::string_view key, std::string_view kind) {
  if (key == "device_share") return false;  // who updates
  if (key == "momentum") return kind == "sgd";
  if (key == "betas") return kind != "sgd";
  if (key == "eps") return kind == "adam" || kind == "adamw";
  return true;
}

Status differs(const FoundCheckpoint& checkpoint, const std::string& what, const std::string& there,
               const std::string& here) {
  return invalid_argument(fmt::format(
      "cannot continue from {}: {} is {} there and {} here; set it back, or start anew in another "
      "output.dir",
      checkpoint.path, what, there, here));
}

/// The key of a configuration that a field of adapter_config.json comes from.
std::string lora_key_of(const std::string& field) {
  static const std::map<std::string, std::string> kKeys = {{"r", "rank"},
                                                           {"lora_alpha", "alpha"},
                                                           {"use_rslora", "rslora"},
                                                           {"target_modules", "targets"}};
  auto key = kKeys.find(field);
  return key == kKeys.end() ? "the adapter's " + field : "model.lora." + key->second;
}

}  // namespace

Status check_same_base(const FoundCheckpoint& checkpoint, const CheckpointRecord& here) {
  const Json &there = checkpoint.record.adapter, &now = here.adapter;
  auto presence = [](const Json& adapter) { return adapter.is_null() ? "absent" : "set"; };
  if (there.is_null() != now.is_null()) {
    return differs(checkpoint, "model.lora", presence(there), presence(now));
  }
  if (now.is_null()) return Status::ok();
  for (const auto& [key, value] : now.members()) {
    if (key == "base_model_name_or_path") continue;  // a base may have moved
    const Json* saved = there.find(key);
    std::string there_text = saved == nullptr ? "absent" : saved->dump();
    if (there_text != value.dump()) {
      return differs(checkpoint, lora_key_of(key), there_text, value.dump());
    }
  }
  if (checkpoint.record.base_sha256 == here.base_sha256) return Status::ok();
  return differs(
      checkpoint,
      "the sha256 of the base (its config.json, and of each tensor the name, type, shape and "
      "first 256 bytes; the rest is not compared)",
      checkpoint.record.base_sha256, here.base_sha256);
}

Status check_base_of_adapters(const std::string& folder, const ModelSource& base) {
  std::error_code error;
  if (!fs::exists(folder + "/" + kStateFile, error)) return Status::ok();
  STAGECOACH_ASSIGN_OR_RETURN(CheckpointRecord record, read_record(folder));
  STAGECOACH_ASSIGN_OR_RETURN(std::string found, base_sha256(base));
  if (found == record.base_sha256) return Status::ok();
  return data_loss(fmt::format(
      "'{}' is not the base that the adapters of '{}' were trained on: its sha256 (of config.json, "
      "and of each tensor the name, type, shape and first 256 bytes) is {}, expected {}; give it "
      "back as it was, or export the "
      "adapters and name another base with model.lora.path beside model.path",
      base.weights_folder, folder, found, record.base_sha256));
}

Status check_resumable(const FoundCheckpoint& checkpoint, const TrainConfig& config,
                       const Json& model, const std::string& data_digest,
                       std::vector<std::string>* notes) {
  const CheckpointRecord& record = checkpoint.record;
  for (const auto& [key, value] : model.members()) {
    if (is_harmless_field(key)) continue;
    const Json* there = record.model.find(key);
    std::string there_text = there == nullptr ? "absent" : there->dump();
    if (there_text != value.dump()) {
      return differs(checkpoint, "the model's " + key, there_text, value.dump());
    }
  }
  Json here = train_config_to_json(config);
  struct Compared {
    const char* section;
    const char* key;
  };
  auto compare = [&](const Compared& entry) -> Status {
    std::string old_value = value_at(record.config, entry.section, entry.key);
    std::string new_value = value_at(here, entry.section, entry.key);
    if (old_value == new_value) return Status::ok();
    return differs(checkpoint, fmt::format("{}.{}", entry.section, entry.key), old_value,
                   new_value);
  };
  STAGECOACH_RETURN_IF_ERROR(compare({"model", "dtype"}));
  // The files may have moved; what they hold may not change.
  if (record.data_digest != data_digest) {
    return differs(checkpoint, "the sha256 of the training tokens", record.data_digest,
                   data_digest);
  }
  for (Compared entry : {Compared{"data", "sequence"},
                         {"data", "seed"},
                         {"data", "tokenizer"},
                         {"data", "packing"},
                         {"train", "batch"},
                         {"train", "z_loss"},
                         {"train", "label_smoothing"}}) {
    STAGECOACH_RETURN_IF_ERROR(compare(entry));
  }
  // Runs write what it came to; those of versions that did not have it had none.
  if (value_at(record.config, "train", "router_loss") != "\"auto\"") {
    STAGECOACH_RETURN_IF_ERROR(compare({"train", "router_loss"}));
  } else if (config.train.router_loss > 0) {
    return differs(checkpoint, "train.router_loss", "0", value_at(here, "train", "router_loss"));
  }
  for (const auto& member : here.find("optimizer")->members()) {
    if (!decides_bits(member.first, config.optimizer.kind)) continue;
    STAGECOACH_RETURN_IF_ERROR(compare({"optimizer", member.first.c_str()}));
  }
  for (const char* key : {"microbatches", "rounds", "seed"}) {
    std::string old_value = value_at(record.config, "train", key);
    std::string new_value = value_at(here, "train", key);
    if (old_value == new_value) continue;
    notes->push_back(
        fmt::format("train.{} was {} and is {} now: results go on from here with other bits", key,
                    old_value, new_value));
  }
  note_update_mode(record, here, notes);
  return Status::ok();
}

}  // namespace stagecoach
