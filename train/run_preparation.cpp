#include "train/run_preparation.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

#include "core/file.h"
#include "core/log.h"
#include "model/peft_adapter.h"
#include "train/interrupt.h"
#include "train/model_tokenizer.h"

namespace stagecoach {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxIterations = int64_t{1} << 31;

/// Says how the reading of large data goes.
ScanWatch scan_watch(Progress& progress) {
  /// Less is there at once.
  constexpr ByteCount kShownBytes = kGiB;
  return [&progress](int64_t done, int64_t total) {
    if (total < kShownBytes) return;
    progress.update(fmt::format("reading data: {} of {}", format_bytes(done), format_bytes(total)));
  };
}

/// What sequences hold, of packings that isolate documents.
void describe_packing(const char* key, const TokenData& data, const TokenWindows& windows,
                      Progress& progress) {
  if (data.packing == Packing::kStream) return;
  bool packs = data.packing == Packing::kDocuments;
  std::string held = packs ? fmt::format("that hold {} whole documents", windows.piece_count())
                           : "of one document each";
  progress.line(fmt::format(
      "{}: {} tokens in {} sequences {} (data.packing = \"{}\"); {} documents longer than "
      "data.sequence = {} are cut",
      key, data.count, windows.count(), held, packing_name(data.packing), windows.cut_documents(),
      windows.sequence()));
}

/// Reads one list of files and cuts it into sequences.
Status prepare_files(const PreparedRun& run, const char* key, const std::vector<std::string>& files,
                     Packing packing, bool keep_tail, Progress& progress, TokenData& data,
                     std::optional<TokenWindows>& windows) {
  const DataConfig& config = run.config.data;
  DataRequest request{files, run.session.source.architecture().vocabulary, config.tokenizer,
                      packing};
  Result<TokenData> read = read_token_data(request, scan_watch(progress));
  if (!read.is_ok()) return read.status().with_context(key);
  data = std::move(read).value();
  // The network is made for data.train; one for streams keeps no documents apart, and the loss of
  // padded ones is the same.
  bool keeps_apart = run.train_data.packing == Packing::kDocuments;
  if (data.packing == Packing::kDocuments && !keeps_apart) data.packing = Packing::kPad;
  Result<TokenWindows> made = TokenWindows::create(data, config.sequence, keep_tail);
  if (!made.is_ok()) return made.status().with_context(key);
  windows = std::move(made).value();
  for (const std::string& note : data.notes) progress.line(fmt::format("{}: {}", key, note));
  describe_packing(key, data, *windows, progress);
  if (windows->left_out() > 0) {
    log_warning(
        fmt::format("{}: {} of {} {} have nothing to be predicted and are left out, "
                    "the first of them {}",
                    key, windows->left_out(), windows->left_out() + windows->piece_count(),
                    data.packing == Packing::kDocuments ? "documents" : "sequences",
                    windows->first_left_out()));
  }
  return Status::ok();
}

/// Warns when tokens were made with another tokenizer than the one beside the weights.
Status warn_of_other_tokenizer(const PreparedRun& run) {
  const ModelConfig& model = run.config.model;
  const std::string& tokens = run.train_data.tokenizer;
  std::error_code ignored;
  if (model.init != "weights" || !fs::is_directory(model.path, ignored)) return Status::ok();
  STAGECOACH_ASSIGN_OR_RETURN(std::string expected, model_tokenizer(model.path));
  bool is_known = !tokens.empty() && !expected.empty() && expected != kUnknownTokenizer;
  if (!is_known || tokens == expected) return Status::ok();
  log_warning(fmt::format(
      "the weights in '{}' belong to the tokenizer {} and data.train was made with {}: what the "
      "model has learned of ids does not fit; use stagecoach-prepare --tokenizer \"{}\"",
      model.path, expected, tokens, model.path));
  return Status::ok();
}

Status prepare_data(PreparedRun& run, Progress& progress) {
  DataConfig& data = run.config.data;
  Packing packing = packing_of(data.packing);
  STAGECOACH_RETURN_IF_ERROR(prepare_files(run, "data.train", data.train, packing, false, progress,
                                           run.train_data, run.train_windows));
  // What the network is made for, and what a resumed run must have.
  data.packing = packing_name(run.train_data.packing);
  STAGECOACH_RETURN_IF_ERROR(warn_of_other_tokenizer(run));
  if (!data.validation.empty()) {
    STAGECOACH_RETURN_IF_ERROR(prepare_files(run, "data.validation", data.validation, packing, true,
                                             progress, run.validation_data,
                                             run.validation_windows));
    if (run.validation_data.tokenizer != run.train_data.tokenizer) {
      return invalid_argument(
          fmt::format("data.validation: '{}' was made with another tokenizer than '{}' of "
                      "data.train; make both "
                      "with one",
                      data.validation.front(), data.train.front()));
    }
  }
  run.sampler =
      std::make_unique<BatchSampler>(*run.train_windows, run.config.train.batch, data.seed);
  int64_t epochs = run.config.train.epochs;
  run.iterations = epochs > 0 ? run.sampler->iterations_of(epochs) : run.config.train.iterations;
  if (int64_t warmup = run.config.optimizer.warmup; warmup > run.iterations) {
    log_warning(
        fmt::format("optimizer.warmup = {} is longer than the run's {} iterations, so the "
                    "learning rate never reaches optimizer.lr; lower it",
                    warmup, run.iterations));
  }
  if (run.iterations <= kMaxIterations) return Status::ok();
  return invalid_argument(fmt::format(
      "train.epochs = {} are {} iterations over {} sequences; allowed: {} or fewer; lower it",
      epochs, run.iterations, run.train_windows->count(), kMaxIterations));
}

bool is_empty_or_absent(const std::string& folder) {
  std::error_code error;
  return !fs::exists(folder, error) || fs::is_empty(folder, error);
}

bool is_same_folder(const std::string& left, const std::string& right) {
  std::error_code ignored;
  return fs::weakly_canonical(left, ignored) == fs::weakly_canonical(right, ignored);
}

/// Whether `checkpoint` lies in the run folder `folder`.
bool belongs_to(const FoundCheckpoint& checkpoint, const std::string& folder) {
  return is_same_folder(fs::path(checkpoint.path + "/").parent_path().parent_path().string(),
                        folder);
}

Result<std::optional<FoundCheckpoint>> choose_checkpoint(const OutputConfig& output) {
  std::vector<std::string> notes;
  if (output.resume == "never") {
    if (is_empty_or_absent(output.dir)) return std::optional<FoundCheckpoint>();
    return invalid_argument(
        fmt::format("output.resume = \"never\" and output.dir = \"{}\" is not empty; name an empty "
                    "folder, or set output.resume = \"auto\" to continue the run in it",
                    output.dir));
  }
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<FoundCheckpoint> here,
                              find_checkpoint(output.dir, &notes));
  if (output.resume == "auto") {
    for (const std::string& note : notes) log_warning(note);
    return here;
  }
  // "DIR": a folder may be a link, such as RUN/checkpoint.
  std::error_code ignored;
  std::string folder = fs::weakly_canonical(output.resume, ignored).string();
  STAGECOACH_ASSIGN_OR_RETURN(std::optional<FoundCheckpoint> there,
                              find_checkpoint(folder, &notes));
  for (const std::string& note : notes) log_warning(note);
  if (!there.has_value()) {
    return not_found(fmt::format(
        "output.resume = \"{}\" holds no checkpoint; allowed: \"auto\", \"never\" or the folder of "
        "a run or checkpoint",
        output.resume));
  }
  if (here.has_value() && !belongs_to(*there, output.dir)) {
    return invalid_argument(
        fmt::format("output.dir = \"{}\" holds checkpoints of another run than output.resume = "
                    "\"{}\"; set output.dir to an empty folder",
                    output.dir, output.resume));
  }
  return there;
}

/// Whether the folder holds the summary of a run that ended at `iterations`.
bool has_summary(const std::string& folder, int64_t iterations) {
  Result<std::string> text = read_file(folder + "/summary.json");
  if (!text.is_ok()) return false;
  Result<Json> summary = Json::parse(*text);
  if (!summary.is_ok()) return false;
  const Json* done = summary->find("iterations");
  return done != nullptr && done->is_integer() && done->as_integer() >= iterations;
}

/// What checkpoints say of adapters and their base.
Status describe_adapters(PreparedRun& run) {
  const ModelSource& source = run.session.source;
  if (!source.lora.is_on()) return Status::ok();
  AdapterConfig config;
  config.lora = source.lora;
  // Tools differ in what else they take for linear.
  if (config.lora.targets == std::vector<std::string>{std::string(kAllLinear)}) {
    config.lora.targets = linear_targets(source.architecture());
  }
  std::error_code ignored;
  config.base = fs::absolute(source.base_path, ignored).lexically_normal().string();
  config.is_transposed = is_transposed(source);
  run.adapter_json = adapter_config_to_json(config);
  STAGECOACH_ASSIGN_OR_RETURN(run.base_sha256, base_sha256(source));
  return Status::ok();
}

Status prepare_resume(PreparedRun& run) {
  run.model_json = run.session.source.config_json;
  STAGECOACH_RETURN_IF_ERROR(describe_adapters(run));
  STAGECOACH_ASSIGN_OR_RETURN(run.resume_from, choose_checkpoint(run.config.output));
  if (!run.resume_from.has_value()) return Status::ok();
  CheckpointRecord here;
  here.adapter = run.adapter_json;
  here.base_sha256 = run.base_sha256;
  STAGECOACH_RETURN_IF_ERROR(check_same_base(*run.resume_from, here));
  std::vector<std::string> notes;
  STAGECOACH_RETURN_IF_ERROR(
      check_resumable(*run.resume_from, run.config, run.model_json, run.train_data.digest, &notes));
  for (const std::string& note : notes) log_warning(note);
  run.is_already_finished = run.resume_from->record.iteration >= run.iterations &&
                            belongs_to(*run.resume_from, run.config.output.dir) &&
                            has_summary(run.config.output.dir, run.iterations);
  return Status::ok();
}

/// Ok when names of files in `folder` are no longer than Linux takes.
Status check_length(const std::string& folder) {
  constexpr size_t kRoomInside = 128;  // "/.checkpoint-2147483647.tmp/", a file's name, its ending
  for (const fs::path& part : fs::path(folder)) {
    if (part.string().size() <= NAME_MAX) continue;
    return io_error(fmt::format(
        "output.dir has a name of {} bytes, at most {} are allowed: '{}'; name a shorter folder",
        part.string().size(), NAME_MAX, part.string()));
  }
  if (folder.size() + kRoomInside < PATH_MAX) return Status::ok();
  return io_error(
      fmt::format("output.dir is a path of {} bytes, at most {} are allowed; name a shorter one, "
                  "for example from the folder where the command runs",
                  folder.size(), PATH_MAX - kRoomInside - 1));
}

/// Tries for real whether files can be created in `folder`, or where it would be created; leaves
/// nothing behind.
Status check_output_folder(const std::string& folder) {
  STAGECOACH_RETURN_IF_ERROR(check_length(folder));
  fs::path place = fs::absolute(folder);
  std::error_code ignored;
  while (!fs::exists(place, ignored) && place != place.parent_path()) place = place.parent_path();
  if (!fs::is_directory(place, ignored)) {
    return io_error(fmt::format("output.dir = \"{}\": '{}' is not a folder; name another", folder,
                                place.string()));
  }
  // What stands where the run will write must be a file that it may replace.
  for (const char* name : {"metrics.jsonl", "summary.json", "layer_times.json", "trace.json"}) {
    fs::path file = fs::path(folder) / name;
    fs::file_status status = fs::symlink_status(file, ignored);
    if (!fs::exists(status) || fs::is_regular_file(status) || fs::is_symlink(status)) continue;
    return io_error(fmt::format(
        "output.dir = \"{}\": '{}' is {} where the run writes a file; remove it or name another "
        "folder",
        folder, file.string(), fs::is_directory(status) ? "a folder" : "no file"));
  }
  std::string probe = (place / fmt::format(".stagecoach-probe-{}", ::getpid())).string();
  Result<FileWriter> writer = FileWriter::create(probe);
  ::unlink(probe.c_str());
  if (writer.is_ok()) return Status::ok();
  return io_error(fmt::format("output.dir = \"{}\" cannot be written: {}; name a folder that can",
                              folder, writer.status().message()));
}

/// Room for every checkpoint that will exist at once and does not yet, and nothing in their way.
Status check_disk(const PreparedRun& run) {
  const OutputConfig& output = run.config.output;
  int64_t done = run.resume_from.has_value() ? run.resume_from->record.iteration : 0;
  int64_t left = run.iterations - done;
  if (left <= 0) return Status::ok();
  STAGECOACH_RETURN_IF_ERROR(check_checkpoint_places(output.dir, done + 1, run.iterations));
  int64_t saves = output.save_every > 0 ? (left + output.save_every - 1) / output.save_every : 1;
  // One more than is kept: the new one is written before the oldest goes.
  int64_t copies = std::min(saves, output.keep_last + 1);
  if (run.resume_from.has_value()) copies = std::min<int64_t>(copies, output.keep_last);
  const Trainer& trainer = *run.session.trainer;
  ByteCount each = checkpoint_bytes(trainer);
  return check_free_space(output.dir, std::max<int64_t>(copies, 1) * each);
}

void warn_about_rounds(const TrainConfig& config, size_t devices) {
  int64_t per_round = config.train.micro_batches / config.train.rounds;
  if (config.schedule.kind != "roundpipe" || per_round >= static_cast<int64_t>(devices)) return;
  log_warning(fmt::format(
      "train.microbatches / train.rounds = {} micro-batches a round are fewer than {} devices: "
      "devices will idle; set train.microbatches to {} or more",
      per_round, devices, static_cast<int64_t>(devices) * config.train.rounds));
}

/// Says how the pinning of a large state goes, and lets a signal end it.
PinWatch pin_watch(Progress& progress) {
  /// Less is there at once.
  constexpr ByteCount kShownBytes = 4 * kGiB;
  return [&progress](const PinProgress& pinned) {
    if (pinned.total >= kShownBytes) progress.update(describe_pin_progress(pinned));
    return !InterruptGuard::is_interrupted();
  };
}

}  // namespace

Result<std::unique_ptr<PreparedRun>> prepare_run(const TrainConfig& config,
                                                 const BackendRegistry& backends,
                                                 Progress& progress) {
  auto run = std::make_unique<PreparedRun>();
  run->config = config;
  ModelConfig model = config.model;
  progress.phase("reading model and data");
  STAGECOACH_ASSIGN_OR_RETURN(run->session.source, resolve_model_for(model, config.data.sequence));
  STAGECOACH_RETURN_IF_ERROR(settle_router_loss(run->config.train, run->session.source));
  STAGECOACH_RETURN_IF_ERROR(prepare_data(*run, progress));
  STAGECOACH_RETURN_IF_ERROR(prepare_resume(*run));
  if (run->is_already_finished) return run;
  STAGECOACH_RETURN_IF_ERROR(check_output_folder(config.output.dir));
  progress.phase("opening devices");
  STAGECOACH_ASSIGN_OR_RETURN(run->session.devices, open_configured_devices(backends, config));
  warn_about_rounds(config, run->session.devices.size());
  progress.phase("planning and allocating");
  STAGECOACH_ASSIGN_OR_RETURN(run->session.trainer,
                              make_trainer(run->session.source, NetworkHead::kLoss, run->config,
                                           run->session.devices, pin_watch(progress)));
  STAGECOACH_RETURN_IF_ERROR(check_disk(*run));
  return run;
}

}  // namespace stagecoach
