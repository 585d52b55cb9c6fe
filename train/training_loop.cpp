#include "train/training_loop.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fmt/format.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "core/file.h"
#include "core/log.h"
#include "memory/host_guard.h"
#include "memory/host_limits.h"
#include "scheduler/layer_time_file.h"
#include "train/evaluation.h"
#include "train/interrupt.h"
#include "train/learning_rate.h"
#include "train/metrics.h"
#include "train/model_tokenizer.h"
#include "train/run_preparation.h"

namespace stagecoach {

namespace {

/// Share of the first iterations that medians leave out, and the least number of them.
constexpr double kWarmUpShare = 0.1;
/// Overrun above this share makes a paced measurement worthless.
constexpr double kMaxOverrun = 0.01;
/// Shorter waits of training for a save are not worth a line.
constexpr double kToldWaitS = 0.1;

int64_t real_now_ns() {
  return RealClock::instance().now_ns();
}

double seconds_since(int64_t start_ns) {
  return static_cast<double>(real_now_ns() - start_ns) * 1e-9;
}

std::vector<double> after_warm_up(const std::vector<double>& values) {
  auto skipped =
      static_cast<std::ptrdiff_t>(std::max(1.0, kWarmUpShare * static_cast<double>(values.size())));
  if (static_cast<std::ptrdiff_t>(values.size()) <= skipped) return values;
  return {values.begin() + skipped, values.end()};
}

template <typename T>
Json list_of(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values) list.push_back(value);
  return list;
}

/// Share of the arithmetic of each device, or why it has none; empty where stages are bound.
Json shares_of(const TrainerReport& report) {
  Json list = Json::array();
  for (size_t index = 0; index < report.shares.size(); ++index) {
    const DeviceShare& share = report.shares[index];
    Json item = Json::object();
    item["device"] = report.devices[index];
    item["share"] = share.work;
    if (!share.used) item["left_out"] = share.reason;
    list.push_back(std::move(item));
  }
  return list;
}

/// "plan and life: …": what was planned beside what was measured.
std::string plan_and_life(const TrainerReport& report, ByteCount host_peak_bytes) {
  ByteCount planned = 0, most = 0;
  for (ByteCount bytes : report.device_planned_bytes) planned = std::max(planned, bytes);
  for (ByteCount bytes : report.device_peak_bytes) most = std::max(most, bytes);
  std::string text = fmt::format(
      "planned and measured: {} and {} of memory on the fullest device, {} and {} on the host, "
      "program included",
      format_bytes(planned), format_bytes(most), format_bytes(report.host_planned_bytes),
      format_bytes(host_peak_bytes));
  if (report.step_predicted_ns <= 0 || report.step_ns <= 0) return text;
  return text + fmt::format("; {:.4g} ms planned and {:.4g} ms taken for a step",
                            report.step_predicted_ns / 1e6, report.step_ns / 1e6);
}

/// A failed iteration with what to do about it, where that is known.
Status explain(const Status& status) {
  if (status.code() == StatusCode::kResourceExhausted) {
    return Status(status.code(),
                  status.message() +
                      "; use smaller micro-batches (train.microbatches), a shorter "
                      "data.sequence or smaller stages (schedule.max_stage_layers)",
                  status.site());
  }
  if (status.code() != StatusCode::kDataLoss || !status.site().verb.empty()) return status;
  return data_loss(fmt::format(
      "{}; lower optimizer.lr, lengthen optimizer.warmup or set optimizer.clip_norm, and start in "
      "another output.dir (model.path may name the last good checkpoint)",
      status.message()));
}

/// One run from its first iteration to its summary.
class TrainingRun {
 public:
  TrainingRun(PreparedRun& run, const LoopOptions& options, Progress& progress)
      : run_(run), options_(options), progress_(progress), trainer_(*run.session.trainer) {}

  Result<TrainingEnd> go();
  Result<Json> finish();

 private:
  const TrainConfig& config() const { return run_.config; }
  const std::string& folder() const { return run_.config.output.dir; }
  bool scales_loss() const { return config().model.dtype == DType::kF16; }
  bool is_last() const { return iteration_ == run_.iterations; }
  bool evaluation_is_due() const {
    int64_t every = config().train.eval_every;
    return (every > 0 && iteration_ % every == 0) || is_last();
  }

  Status start();
  Result<TrainingEnd> train();
  Status iterate();
  Status synchronize();
  Status check_host_memory();
  Status log_ended();
  Status log(const StepUpdate& update);
  Status write_metrics(const Json& record);
  Status evaluate();
  Status check_folder() const;
  Status save();
  Status begin_save();
  Status end_save();
  Status end_save_before_next();
  void show_progress(const StepLoss& loss);
  Json summary() const;

  PreparedRun& run_;
  const LoopOptions& options_;
  Progress& progress_;
  Trainer& trainer_;
  std::optional<FolderLock> lock_;
  dev_t folder_device_ = 0;  ///< which folder it is
  ino_t folder_node_ = 0;
  std::optional<MetricsWriter> metrics_;
  TokenBatch batch_;
  HostGuard guard_;

  /// An iteration whose update may still be under way.
  struct Begun {
    int64_t iteration = 0;
    StepLoss loss;
    double rate = 0;
    double seconds = 0;
    int64_t targets = 0;  ///< trained on until its end
  };

  int64_t iteration_ = 0;  ///< updates done or begun
  std::deque<Begun> begun_;
  int64_t saved_iteration_ = -1;  ///< or being saved
  SaveCopies save_copies_;        ///< the memory of output.save_copy
  std::unique_ptr<CheckpointSave> saving_;
  int64_t save_start_ns_ = 0, save_wait_ns_ = 0;
  ByteCount save_copied_bytes_ = 0;
  double saves_waited_s_ = 0;  ///< updates and training, for saves that have ended
  int64_t evaluated_iteration_ = -1;
  int64_t start_ns_ = 0;
  double loss_first_ = 0;
  double loss_last_ = 0;
  double validation_loss_ = 0;
  double bigram_entropy_ = 0;         ///< of the validation data
  std::vector<double> tokens_per_s_;  ///< of this process's iterations
  std::vector<double> bubbles_;
  int64_t logged_targets_ = 0;  ///< since the last line
  double logged_seconds_ = 0;
  int64_t targets_ = 0;  ///< trained on since the start of the run
  ByteCount host_peak_bytes_ = 0;
};

Status TrainingRun::start() {
  progress_.phase("filling parameters");
  if (run_.resume_from.has_value()) {
    const CheckpointRecord& record = run_.resume_from->record;
    if (trainer_.network().has_adapters()) {
      STAGECOACH_RETURN_IF_ERROR(
          fill_base(run_.session.source, config().model, trainer_, progress_));
    }
    STAGECOACH_RETURN_IF_ERROR(load_checkpoint(*run_.resume_from, trainer_));
    iteration_ = record.iteration;
    saved_iteration_ = iteration_;
    loss_first_ = record.loss_first;
    loss_last_ = record.loss_last;
    targets_ = record.targets;
    progress_.line(fmt::format("continuing from {} at iteration {} of {}", run_.resume_from->path,
                               iteration_, run_.iterations));
  } else {
    STAGECOACH_RETURN_IF_ERROR(
        fill_parameters(run_.session.source, config().model, trainer_, progress_));
  }
  // From here on the output folder is written to.
  STAGECOACH_RETURN_IF_ERROR(make_folders(folder()));
  STAGECOACH_ASSIGN_OR_RETURN(lock_, FolderLock::acquire(folder()));
  struct stat there = {};
  if (::stat(folder().c_str(), &there) != 0) return check_folder();
  folder_device_ = there.st_dev;
  folder_node_ = there.st_ino;
  remove_unfinished_checkpoints(folder());
  std::error_code ignored;
  for (const char* name : {"/summary.json", "/layer_times.json"}) {
    std::filesystem::remove(folder() + name, ignored);
  }
  STAGECOACH_ASSIGN_OR_RETURN(metrics_,
                              MetricsWriter::open(folder() + "/metrics.jsonl", iteration_));
  if (ByteCount bytes = config().output.save_copy; bytes > 0) {
    save_copies_ = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(bytes));
  }
  start_ns_ = real_now_ns();
  return Status::ok();
}

Result<TrainingEnd> TrainingRun::go() {
  Result<TrainingEnd> end = train();
  // What was being saved when something failed is not lost, if its iteration had ended.
  if (!end.is_ok() && saving_) {
    Status logged = log_ended();
    Status saved = check_folder();
    if (saved.is_ok()) saved = saving_->publish(config().output.keep_last);
    progress_.line(fmt::format("iteration {}: {}", saving_->iteration(),
                               saved.is_ok() ? "saved a checkpoint" : saved.message()));
  }
  return end;
}

Result<TrainingEnd> TrainingRun::train() {
  if (InterruptGuard::is_interrupted()) return TrainingEnd::kInterrupted;
  STAGECOACH_RETURN_IF_ERROR(start());
  // An interrupt ends the evaluation of the iteration that it saves.
  bool left_over = iteration_ > 0 && evaluation_is_due() && !is_last() &&
                   metrics_->last_validation_iteration() < iteration_;
  if (left_over) STAGECOACH_RETURN_IF_ERROR(evaluate());
  progress_.phase("training");
  for (const std::string& note : trainer_.take_notes()) progress_.line(note);
  while (iteration_ < run_.iterations) {
    if (InterruptGuard::is_interrupted()) {
      if (iteration_ > 0) STAGECOACH_RETURN_IF_ERROR(save());
      return TrainingEnd::kInterrupted;
    }
    STAGECOACH_RETURN_IF_ERROR(iterate());
    STAGECOACH_RETURN_IF_ERROR(check_host_memory());
    const OutputConfig& output = config().output;
    bool save_now = output.save_every > 0 && iteration_ % output.save_every == 0;
    if (is_last()) {
      STAGECOACH_RETURN_IF_ERROR(save());
    } else if (save_now) {
      STAGECOACH_RETURN_IF_ERROR(begin_save());
    } else if (saving_ && saving_->is_done()) {
      STAGECOACH_RETURN_IF_ERROR(end_save());
    }
    if (!evaluation_is_due()) continue;
    Status status = evaluate();
    if (status.code() == StatusCode::kCancelled && InterruptGuard::is_interrupted()) continue;
    STAGECOACH_RETURN_IF_ERROR(status);
  }
  if (InterruptGuard::is_interrupted()) return TrainingEnd::kInterrupted;
  if (evaluated_iteration_ != iteration_) {
    // A run that was interrupted between its last checkpoint and its summary.
    STAGECOACH_RETURN_IF_ERROR(evaluate());
  }
  return TrainingEnd::kFinished;
}

Status TrainingRun::iterate() {
  int64_t start_ns = real_now_ns();
  std::string where = fmt::format("iteration {}", iteration_ + 1);
  Status filled = run_.sampler->fill(iteration_, batch_);
  if (!filled.is_ok()) return filled.with_context(where);
  Shape shape{batch_.sequences, batch_.sequence};
  Result<StepLoss> loss = trainer_.forward_backward(
      HostTensor::of(batch_.inputs, shape), HostTensor::of(batch_.labels, shape), {},
      HostTensor::of_any(batch_.document_starts, shape));
  if (!loss.is_ok()) return explain(loss.status()).with_context(where);
  const OptimizerConfig& optimizer = config().optimizer;
  double rate = learning_rate_at(iteration_, run_.iterations, optimizer.lr, optimizer.warmup,
                                 optimizer.decay, optimizer.min_lr);
  Status stepped = trainer_.step(rate);
  if (!stepped.is_ok()) return explain(stepped).with_context(where);
  ++iteration_;
  double seconds = seconds_since(start_ns);
  for (const std::string& note : trainer_.take_notes()) progress_.line(note);
  tokens_per_s_.push_back(static_cast<double>(loss->targets) / seconds);
  targets_ += loss->targets;
  begun_.push_back({iteration_, *loss, rate, seconds, targets_});
  if (iteration_ == 1) loss_first_ = loss->loss;
  loss_last_ = loss->loss;
  STAGECOACH_RETURN_IF_ERROR(log_ended());
  show_progress(*loss);
  return Status::ok();
}

/// Ends what is under way, so that metrics, parameters and moments are those of `iteration_`.
Status TrainingRun::synchronize() {
  Status status = trainer_.synchronize();
  if (!status.is_ok()) {
    return explain(status).with_context(fmt::format("iteration {}", iteration_));
  }
  return log_ended();
}

Status TrainingRun::log_ended() {
  for (const StepUpdate& update : trainer_.take_updates()) {
    STAGECOACH_CHECK(!begun_.empty() && begun_.front().iteration == update.iteration);
    STAGECOACH_RETURN_IF_ERROR(log(update));
    begun_.pop_front();
  }
  return Status::ok();
}

/// Ends the run with a checkpoint and a message before the system ends it without.
Status TrainingRun::check_host_memory() {
  Status status = guard_.check();
  if (status.is_ok()) return status;
  Status saved = save();
  return Status(
      status.code(),
      saved.is_ok()
          ? fmt::format("iteration {}: {}, and run the same command again to continue from '{}'",
                        iteration_, status.message(), folder())
          : fmt::format("iteration {}: {}; no checkpoint could be saved: {}", iteration_,
                        status.message(), saved.message()));
}

Status TrainingRun::log(const StepUpdate& update) {
  const Begun& begun = begun_.front();
  bubbles_.push_back(update.bubble);
  logged_targets_ += begun.loss.targets;
  logged_seconds_ += begun.seconds;
  bool is_last = update.iteration == run_.iterations;
  if (update.iteration % config().train.log_every != 0 && !is_last) return Status::ok();
  IterationMetrics metrics;
  metrics.iteration = update.iteration;
  metrics.loss = begun.loss.loss;
  metrics.router_loss = begun.loss.router_loss;
  metrics.tokens = begun.targets;
  metrics.tokens_per_s = static_cast<double>(logged_targets_) / logged_seconds_;
  metrics.grad_norm = update.gradient_norm;
  metrics.lr = begun.rate;
  metrics.bubble = update.bubble;
  if (scales_loss()) metrics.loss_scale = update.loss_scale;
  metrics.skipped = update.skipped;
  logged_targets_ = 0;
  logged_seconds_ = 0;
  return write_metrics(iteration_metrics_to_json(metrics));
}

Status TrainingRun::write_metrics(const Json& record) {
  if (options_.json_lines) {
    // A reader that went away does not end the run: metrics.jsonl holds every line.
    std::fputs((record.dump() + "\n").c_str(), stdout);
    std::fflush(stdout);
  }
  Status written = metrics_->write(record);
  // A folder that went is the cause of whatever could not be done in it.
  if (!written.is_ok()) STAGECOACH_RETURN_IF_ERROR(check_folder());
  return written;
}

void TrainingRun::show_progress(const StepLoss& loss) {
  double done = static_cast<double>(tokens_per_s_.size());
  double left = static_cast<double>(run_.iterations - iteration_);
  double seconds_left = seconds_since(start_ns_) / done * left;
  progress_.update(fmt::format(
      "iteration {}/{}  loss {:.4f}  {:.0f} tokens/s  idle {:.1f} %  {} left", iteration_,
      run_.iterations, loss.loss, tokens_per_s_.back(),
      bubbles_.empty() ? 0.0 : 100.0 * bubbles_.back(), format_time_left(seconds_left)));
}

Status TrainingRun::evaluate() {
  if (!run_.validation_windows.has_value()) return Status::ok();
  STAGECOACH_RETURN_IF_ERROR(synchronize());
  progress_.phase(fmt::format("iteration {}: evaluating", iteration_));
  STAGECOACH_ASSIGN_OR_RETURN(
      Evaluation result, evaluate_windows(trainer_, *run_.validation_windows, config().train.batch,
                                          config().train.eval_tokens));
  validation_loss_ = result.loss;
  evaluated_iteration_ = iteration_;
  progress_.line(fmt::format("iteration {}: validation loss {:.4f} over {} tokens", iteration_,
                             result.loss, result.tokens));
  return write_metrics(validation_metrics_to_json(iteration_, result.loss));
}

/// Ok while output.dir is the folder that this run began to write to: a lock keeps others out of a
/// folder, not out of a name.
Status TrainingRun::check_folder() const {
  struct stat there = {};
  if (::stat(folder().c_str(), &there) == 0 && there.st_dev == folder_device_ &&
      there.st_ino == folder_node_) {
    return Status::ok();
  }
  return io_error(
      fmt::format("output.dir '{}' is not the folder any more that this run began to write to: it "
                  "was moved, removed or replaced; nothing is saved there. Run the command again "
                  "in a folder that stays",
                  folder()));
}

/// Saves what the iterations so far make, while training goes on.
Status TrainingRun::begin_save() {
  if (saved_iteration_ == iteration_) return Status::ok();
  STAGECOACH_RETURN_IF_ERROR(end_save_before_next());
  STAGECOACH_RETURN_IF_ERROR(check_folder());
  CheckpointRecord record;
  record.iteration = iteration_;
  record.config = train_config_to_json(config());
  record.model = run_.model_json;
  record.adapter = run_.adapter_json;
  record.base_sha256 = run_.base_sha256;
  record.data_digest = run_.train_data.digest;
  record.tokenizer =
      run_.train_data.tokenizer.empty() ? kUnknownTokenizer : run_.train_data.tokenizer;
  record.targets = targets_;
  record.loss_first = loss_first_;
  record.loss_last = loss_last_;
  save_start_ns_ = real_now_ns();
  save_wait_ns_ = trainer_.reading_wait_ns();
  Result<std::unique_ptr<CheckpointSave>> begun =
      CheckpointSave::begin(folder(), std::move(record), trainer_, save_copies_);
  if (!begun.is_ok()) {
    STAGECOACH_RETURN_IF_ERROR(check_folder());
    return begun.status();
  }
  saving_ = std::move(begun).value();
  saved_iteration_ = iteration_;
  return Status::ok();
}

/// The end of a save that has been begun, if there is one.
Status TrainingRun::end_save() {
  if (!saving_) return Status::ok();
  Status read = trainer_.finish_reading();
  if (!read.is_ok()) {
    return explain(read).with_context(fmt::format("iteration {}", saving_->iteration()));
  }
  STAGECOACH_RETURN_IF_ERROR(log_ended());
  // Lines of metrics must not be missing that a resumed run does not write again.
  bool is_logged = begun_.empty() || begun_.front().iteration > saving_->iteration();
  if (!is_logged) STAGECOACH_RETURN_IF_ERROR(synchronize());
  STAGECOACH_RETURN_IF_ERROR(check_folder());
  std::unique_ptr<CheckpointSave> save = std::move(saving_);
  if (Status status = save->publish(config().output.keep_last); !status.is_ok()) {
    // A folder that went is the cause of whatever could not be done in it.
    STAGECOACH_RETURN_IF_ERROR(check_folder());
    return status;
  }
  double waited = static_cast<double>(trainer_.reading_wait_ns() - save_wait_ns_) * 1e-9;
  saves_waited_s_ += waited;
  save_copied_bytes_ += save->copied_bytes();
  std::string copied =
      !save_copies_ ? "" : fmt::format(", {} were copied", format_bytes(save->copied_bytes()));
  progress_.line(fmt::format(
      "iteration {}: saved a checkpoint of {} in {:.1f} s; updates waited {:.2f} s for it{}",
      save->iteration(), format_bytes(save->size_bytes()), seconds_since(save_start_ns_), waited,
      copied));
  return Status::ok();
}

/// One save at a time: training waits for the one before when the next is due.
Status TrainingRun::end_save_before_next() {
  if (!saving_ || saving_->is_done()) return end_save();
  int64_t before = saving_->iteration();
  int64_t start_ns = real_now_ns();
  STAGECOACH_RETURN_IF_ERROR(end_save());
  double waited = seconds_since(start_ns);
  saves_waited_s_ += waited;
  if (waited >= kToldWaitS) {
    progress_.line(
        fmt::format("iteration {}: training waited {:.1f} s for the checkpoint of iteration {}, "
                    "which was still being written; with a larger output.save_every it need not",
                    iteration_, waited, before));
  }
  return Status::ok();
}

Status TrainingRun::save() {
  progress_.phase(fmt::format("iteration {}: saving a checkpoint", iteration_));
  STAGECOACH_RETURN_IF_ERROR(begin_save());
  return end_save();
}

Json TrainingRun::summary() const {
  TrainerReport report = trainer_.report();
  Json json = Json::object();
  bool measured = !tokens_per_s_.empty();
  json["tokens_per_s"] = measured ? Json(median(after_warm_up(tokens_per_s_))) : Json();
  json["loss_first"] = loss_first_;
  json["loss_last"] = loss_last_;
  bool validated = run_.validation_windows.has_value();
  json["validation_loss"] = validated ? Json(validation_loss_) : Json();
  json["bigram_entropy"] = validated ? Json(bigram_entropy_) : Json();
  json["iterations"] = iteration_;
  json["tokens"] = targets_;
  double positions = static_cast<double>(iteration_ * config().train.batch) *
                     static_cast<double>(config().data.sequence);
  json["target_fraction"] = static_cast<double>(targets_) / positions;
  json["packing"] = packing_name(run_.train_data.packing);
  json["parameters"] = trainer_.network().parameter_count();
  if (scales_loss()) {
    json["loss_scale"] = trainer_.loss_scale().value;
    json["skipped_steps"] = trainer_.loss_scale().skipped_steps;
  }
  json["schedule"] = report.schedule;
  json["update"] = report.update;
  bool streamed = trainer_.plan().residence == Residence::kStreamed;
  json["dispatch"] = streamed ? config().schedule.dispatch : "bound";
  json["activations"] = report.activations;
  json["devices"] = list_of(report.devices);
  json["bubble_fraction"] = measured ? Json(median(bubbles_)) : Json();
  json["bubble_simulated"] = report.bubble_simulated;
  json["update_exposed_fraction"] = report.update_exposed_fraction;
  json["controller_fraction"] = report.controller_fraction;
  json["overrun"] = report.overrun;
  json["measurement_valid"] = report.overrun <= kMaxOverrun;
  json["device_peak_bytes"] = list_of(report.device_peak_bytes);
  Json memory = Json::array();
  for (const std::unique_ptr<Device>& device : run_.session.devices) {
    memory.push_back(device->info().memory_bytes);
  }
  json["device_memory_bytes"] = std::move(memory);
  json["device_planned_bytes"] = list_of(report.device_planned_bytes);
  json["shares"] = shares_of(report);
  bool predicted = report.step_predicted_ns > 0;
  json["step_predicted_s"] = predicted ? Json(report.step_predicted_ns * 1e-9) : Json();
  json["step_s"] = predicted ? Json(report.step_ns * 1e-9) : Json();
  json["moments"] = config().optimizer.moments;
  json["moments_change_numerics"] = config().optimizer.moments != "fp32";
  json["device_share"] = report.device_share;
  json["state_bytes"] = report.state_bytes;
  json["mapped_bytes"] = report.mapped_bytes;
  json["landing_bytes"] = report.landing_bytes;
  json["host_state_bytes_per_parameter"] = report.host_state_bytes_per_parameter;
  json["host_planned_bytes"] = report.host_planned_bytes;
  json["host_peak_bytes"] = host_peak_bytes_;
  json["host_pinned_bytes"] = report.pinning.pinned;
  json["host_unpinned_bytes"] = report.pinning.asked - report.pinning.pinned;
  json["save_wait_s"] = saves_waited_s_;
  json["save_copied_bytes"] = save_copied_bytes_;
  json["bytes_up"] = report.bytes_up;
  json["bytes_down"] = report.bytes_down;
  if (options_.race_count) json["races"] = options_.race_count();
  json["wall_s"] = seconds_since(start_ns_);
  json["plan"] = plan_to_text(trainer_.plan());
  json["weights_sha256"] = trainer_.weights_sha256();
  return json;
}

Result<Json> TrainingRun::finish() {
  progress_.phase("writing the summary");
  STAGECOACH_RETURN_IF_ERROR(synchronize());
  if (run_.validation_windows.has_value()) {
    STAGECOACH_ASSIGN_OR_RETURN(
        bigram_entropy_, bigram_entropy_of(*run_.validation_windows, config().train.eval_tokens));
  }
  STAGECOACH_ASSIGN_OR_RETURN(host_peak_bytes_, peak_host_bytes());
  Json result = summary();
  if (result.find("overrun")->as_number() > kMaxOverrun) {
    progress_.line(fmt::format(
        "overrun is {:.1f} %: the host was slower than the paced devices, so times and idle shares "
        "of this run say nothing; lower flops in the device string",
        100.0 * result.find("overrun")->as_number()));
  }
  progress_.line(plan_and_life(trainer_.report(), host_peak_bytes_));
  if (trainer_.measured() != nullptr) {
    int64_t tokens = config().train.batch / config().train.micro_batches * config().data.sequence;
    LayerTimes times{trainer_.measured()->layers, std::nullopt, static_cast<double>(tokens)};
    STAGECOACH_RETURN_IF_ERROR(write_file_atomically(folder() + "/layer_times.json",
                                                     layer_times_to_json(times).dump(true) + "\n"));
  }
  if (config().output.trace) {
    STAGECOACH_RETURN_IF_ERROR(trainer_.trace().write_perfetto(folder() + "/trace.json"));
  }
  STAGECOACH_RETURN_IF_ERROR(
      write_file_atomically(folder() + "/summary.json", result.dump(true) + "\n"));
  return result;
}

Json describe_plan(const PreparedRun& run) {
  const Trainer& trainer = *run.session.trainer;
  TrainerReport report = trainer.report();
  Json json = Json::object();
  json["fits"] = true;
  json["parameters"] = trainer.network().parameter_count();
  json["iterations"] = run.iterations;
  json["tokens"] = run.iterations * run.config.train.batch * run.config.data.sequence;
  json["train_tokens"] = run.train_data.count;
  json["train_sequences"] = run.train_windows->count();
  json["validation_tokens"] = run.validation_data.count;
  json["devices"] = list_of(report.devices);
  json["device_peak_bytes"] = list_of(report.device_peak_bytes);
  json["state_bytes"] = report.state_bytes;
  json["mapped_bytes"] = report.mapped_bytes;
  json["landing_bytes"] = report.landing_bytes;
  json["host_planned_bytes"] = report.host_planned_bytes;
  json["checkpoint_bytes"] = checkpoint_bytes(trainer);
  json["plan"] = plan_to_text(trainer.plan());
  return json;
}

/// A disk that fills up is an input-output failure here: "resource exhausted" means memory.
Status disk_failures_as_io(Status status) {
  bool is_disk = status.code() == StatusCode::kResourceExhausted &&
                 status.message().find("No space left") != std::string::npos;
  return is_disk ? io_error(status.message()) : status;
}

}  // namespace

Result<TrainingOutcome> run_training(const TrainConfig& config, const LoopOptions& options,
                                     const BackendRegistry& backends) {
  InterruptGuard guard;
  Progress progress;
  Result<std::unique_ptr<PreparedRun>> prepared = prepare_run(config, backends, progress);
  if (prepared.status().code() == StatusCode::kCancelled && InterruptGuard::is_interrupted()) {
    progress.line("interrupted before training began; nothing was written");
    return TrainingOutcome{TrainingEnd::kInterrupted, Json()};
  }
  STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<PreparedRun> run, std::move(prepared));
  if (run->is_already_finished) {
    progress.line(
        fmt::format("the run in '{}' has finished all {} iterations; raise train.iterations to "
                    "continue it, or set another output.dir",
                    config.output.dir, run->iterations));
    return TrainingOutcome{TrainingEnd::kAlreadyFinished, Json()};
  }
  if (options.dry_run) return TrainingOutcome{TrainingEnd::kDryRun, describe_plan(*run)};
  TrainingRun training(*run, options, progress);
  Result<TrainingEnd> end = training.go();
  if (!end.is_ok()) return disk_failures_as_io(end.status());
  if (*end == TrainingEnd::kInterrupted) {
    progress.line(fmt::format("interrupted; run the same command again to continue from '{}'",
                              config.output.dir));
    return TrainingOutcome{TrainingEnd::kInterrupted, Json()};
  }
  Result<Json> summary = training.finish();
  if (!summary.is_ok()) return disk_failures_as_io(summary.status());
  return TrainingOutcome{TrainingEnd::kFinished, std::move(summary).value()};
}

}  // namespace stagecoach
