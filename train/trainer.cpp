#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "core/clock.h"
#include "core/digest.h"
#include "core/float_pieces.h"
#include "core/settings.h"
#include "core/task_pool.h"
#include "hal/host_worker.h"
#include "memory/activation_store.h"
#include "memory/budget.h"
#include "memory/host_state.h"
#include "scheduler/network_state.h"
#include "scheduler/plan_validation.h"
#include "scheduler/planner.h"
#include "scheduler/run_tuner.h"
#include "scheduler/schedules/schedule.h"
#include "scheduler/stage_executor.h"
#include "train/batch_staging.h"
#include "train/device_updates.h"
#include "train/initial_values.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/predicted_slices.h"
#include "train/run_memory.h"
#include "train/trainer_options.h"

namespace stagecoach {

namespace {

/// Steps are numbered from here on, so that there is a version before the first one's: a run that
/// goes on with `async` computes its first step with it.
constexpr int64_t kFirstStep = 1;

bool ends_with_any(const std::string& name, const std::vector<std::string>& suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(),
                     [&](const std::string& suffix) { return name.ends_with(suffix); });
}

}  // namespace

struct Trainer::Impl {
  Impl(Network made, std::vector<Device*> used, TrainerOptions chosen, int threads)
      : network(std::move(made)),
        devices(std::move(used)),
        options(std::move(chosen)),
        rule(update_rule(options)),
        moments(moment_options(options)),
        pool(TaskPool::create(threads)),
        worker("host", *pool) {}

  Status build();
  Status prepare_request();
  Result<PlannedRun> make_plan() const;
  Residence residence() const;
  Status check_host(const PlannedRun& run) const;
  Status keep_gradients();
  Pinning pinning() const;
  Status build_state();
  Status fill_constants();
  Status adopt(PlannedRun next);
  Status replan();
  Status choose_share(const PlannedRun& next);
  Result<PlannedRun> plan_with_updates(const ShareChoice& choice);
  double step_update_ns(const StepOutcome& step) const;
  StepSetup used_devices(const PlannedRun& run) const;
  std::vector<TraceSlice> predicted_pass();
  void note_pass(const FinishedPass& pass);
  Status start_pass(const Plan& plan, const BatchStaging& batch, PassInput& pass);
  Status run_inference(const BatchStaging& batch);
  static Result<StepLoss> pass_loss(const BatchStaging& batch, int64_t targets);
  void take_finished();
  bool scales_loss() const { return network.dtype == DType::kF16; }
  Result<double> loss_scale_of_pass();
  void note_step(int64_t start_ns);
  void initialize(int block);
  Status drain();
  UpdateMode update_mode() const { return request.update; }
  BatchStaging& next_staging() {
    return *staging[static_cast<size_t>(passes_loaded++) % staging.size()];
  }

  Network network;
  std::vector<Device*> devices;
  TrainerOptions options;
  UpdateRule rule;
  MomentOptions moments;
  std::unique_ptr<TaskPool> pool;
  MicroBatchShape shape;
  PlanRequest request;
  HostLimits limits;  ///< when the run began
  PlannedRun planned;
  ByteCount host_planned_bytes = 0;      ///< the most with any plan so far
  std::vector<ByteCount> used_before;    ///< per device: what its backend and updates there take
  std::vector<ByteCount> planned_bytes;  ///< per device: the most with any plan so far
  std::optional<RunTuner> tuner;
  std::vector<std::string> notes;
  bool chooses_share = false;                       ///< once layers and updates have been measured
  std::vector<std::vector<ParameterGroup>> groups;  ///< per block, per parameter
  std::shared_ptr<const MappedWeights> base;        ///< outlives the state, which reads it
  std::unique_ptr<HostState> state;
  std::optional<ActivationStore> store;
  /// Passes may be under way at the same time, so batches take turns.
  std::vector<std::unique_ptr<BatchStaging>> staging;
  Trace trace;
  // The worker's jobs and the executor's streams use what is above, so they go first.
  HostWorker worker;
  std::unique_ptr<DeviceUpdates> device_updates;  ///< null: the host updates all
  std::unique_ptr<StageExecutor> executor;

  int64_t iteration = 0;
  LossScales loss_scales;
  std::map<int64_t, double> scale_of_step;  ///< that its passes computed with
  int64_t passes_of_plan = 0;               ///< the rotation continues across them
  std::optional<PredictedPass> last_pass;
  bool gradients_pending = false;
  bool masked_pass_pending = false;  ///< a pass of the next step had no target
  int64_t masked_steps = 0;          ///< skipped for want of targets
  int64_t passes_loaded = 0;
  int64_t steps_asked = kFirstStep;                ///< the number of the next
  std::map<int64_t, size_t> passes_of_step;        ///< begun, by step
  std::map<int64_t, std::vector<double>> bubbles;  ///< of passes that have ended, by step
  std::deque<StepOutcome> ended_steps;             ///< whose passes may not have been reported
  std::vector<StepUpdate> updates;                 ///< that nobody has asked for
  int64_t iteration_began_ns = 0;
  double waited_ns = 0;  ///< devices for updates, in the mean, in passes that ended since a step
  std::vector<double> controller_fractions, exposed_fractions, simulated_bubbles;
  std::vector<double> steps_ns;  ///< whole steps since the plan was adopted
  ByteCount bytes_up = 0, bytes_down = 0;
  int64_t reading_wait_ns = 0;  ///< with plans before this one
};

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;

Result<std::unique_ptr<Trainer>> Trainer::create(Network network, std::vector<Device*> devices,
                                                 TrainerOptions options) {
  STAGECOACH_RETURN_IF_ERROR(check_trainer_options(options, devices.size()));
  STAGECOACH_RETURN_IF_ERROR(network.validate());
  STAGECOACH_ASSIGN_OR_RETURN(Settings settings, read_settings());
  int threads = options.host_threads > 0 ? options.host_threads : settings.threads;
  if (threads <= 0) threads = usable_thread_count();
  auto impl =
      std::make_unique<Impl>(std::move(network), std::move(devices), std::move(options), threads);
  STAGECOACH_RETURN_IF_ERROR(impl->build());
  return std::unique_ptr<Trainer>(new Trainer(std::move(impl)));
}

Status Trainer::Impl::build() {
  shape = MicroBatchShape{options.batch / options.micro_batches, options.sequence};
  STAGECOACH_RETURN_IF_ERROR(prepare_request());
  STAGECOACH_ASSIGN_OR_RETURN(limits, options.host_limits());
  // First what does not depend on a plan: plans of too many micro-batches are none.
  STAGECOACH_RETURN_IF_ERROR(
      check_host_need(host_need_before_planning(network, request, residence()), limits));
  STAGECOACH_ASSIGN_OR_RETURN(PlannedRun first, make_plan());
  if (request.residency && !check_host(first).is_ok()) {
    // Spare memory of mocks is the host's, which the run may need.
    request.residency = false;
    STAGECOACH_ASSIGN_OR_RETURN(first, make_plan());
  }
  STAGECOACH_RETURN_IF_ERROR(check_host(first));
  STAGECOACH_RETURN_IF_ERROR(build_state());
  chooses_share = options.device_share == kAutoShare;
  if (options.device_share > 0) {
    STAGECOACH_ASSIGN_OR_RETURN(
        device_updates,
        DeviceUpdates::create(devices, network, *state, rule, options.device_share, *pool));
  }
  STAGECOACH_RETURN_IF_ERROR(adopt(std::move(first)));
  std::string unpinned = describe_pinning(pinning(), limits);
  if (ByteCount ring = executor->ring_bytes(); ring > 0) {
    if (unpinned.empty()) unpinned = "the base is mapped from its files";
    unpinned += fmt::format("; parameters and gradients travel through {} that are pinned",
                            format_bytes(ring));
  }
  if (!unpinned.empty()) notes.push_back(std::move(unpinned));
  StepSetup setup = step_setup(network, request);
  tuner.emplace(std::move(setup.layers), std::move(setup.devices));
  if (!options.times_layers) tuner->settle();
  loss_scales.restart({options.loss_scale, 0, 0}, options.loss_scale);
  for (const ParameterBlock& block : network.blocks) {
    std::vector<ParameterGroup> of_block;
    for (const ParameterInfo& parameter : block.parameters) {
      of_block.push_back({1.0, parameter.decay ? options.weight_decay : 0.0});
    }
    groups.push_back(std::move(of_block));
  }
  worker.set_pace(options.host_bytes_per_s * 1e-9);
  if (options.trace) {
    int host = static_cast<int>(devices.size());
    for (int d = 0; d < host; ++d) {
      trace.name_process(d, devices[d]->id());
      for (int lane = 0; lane < kLaneCount; ++lane) {
        trace.name_track(d, lane, lane_name(static_cast<LaneKind>(lane)));
      }
    }
    trace.name_process(host, "host");
    trace.name_track(host, 0, "optimizer");
    worker.set_trace(&trace, host, 0);
    if (device_updates) device_updates->set_trace(trace, host, 1);
  }
  return Status::ok();
}

Status Trainer::Impl::prepare_request() {
  if (options.device_share > 0) request.device_update_bytes = DeviceUpdates::bytes(network);
  for (Device* device : devices) {
    STAGECOACH_ASSIGN_OR_RETURN(MemoryUsage usage, device->memory_usage());
    DeviceInfo info = device->info();
    if (!options.measured.empty()) {
      const MeasuredLinks& measured = options.measured[request.devices.size()];
      if (measured.up_bytes_per_s > 0) info.up_bytes_per_s = measured.up_bytes_per_s;
      if (measured.down_bytes_per_s > 0) info.down_bytes_per_s = measured.down_bytes_per_s;
    }
    request.devices.push_back(std::move(info));
    ByteCount free = usage.total_bytes - usage.used_bytes;
    if (free < request.device_update_bytes) {
      return resource_exhausted(fmt::format(
          "device {} has {} free; updates there take {}: set optimizer.device_share = 0",
          device->id(), format_bytes(free), format_bytes(request.device_update_bytes)));
    }
    request.free_bytes.push_back(free - request.device_update_bytes);
    used_before.push_back(usage.used_bytes + request.device_update_bytes);
  }
  request.shape = shape;
  request.micro_batches = static_cast<int>(options.micro_batches);
  request.rounds = static_cast<int>(options.rounds);
  request.max_stage_layers = static_cast<int>(options.max_stage_layers);
  request.is_static = options.dispatch == "static";
  STAGECOACH_ASSIGN_OR_RETURN(request.update, parse_update_mode(options.update));
  request.gated = updates_wait_for_norm(options, network.dtype);
  request.moments = moments;
  request.residency = options.residency == "auto";
  if (options.activations == "keep") request.activations = ActivationPolicy::kKeep;
  if (options.activations == "recompute") request.activations = ActivationPolicy::kRecompute;
  return Status::ok();
}

Result<PlannedRun> Trainer::Impl::make_plan() const {
  PlannedRun run;
  if (binds_stages(options.schedule)) {
    STAGECOACH_ASSIGN_OR_RETURN(const Schedule* schedule, find_schedule(options.schedule));
    STAGECOACH_ASSIGN_OR_RETURN(run, plan_bound_run(network, request, *schedule));
  } else {
    STAGECOACH_ASSIGN_OR_RETURN(run, plan_run(network, request));
  }
  int layer_count = static_cast<int>(network.layers.size());
  for (const Plan& plan : run.training_plans) {
    STAGECOACH_RETURN_IF_ERROR(validate_plan(plan, layer_count, false));
  }
  STAGECOACH_RETURN_IF_ERROR(validate_plan(run.inference_plan, layer_count, true));
  return run;
}

/// What does not depend on the plan.
Status Trainer::Impl::build_state() {
  Device& pinning = *devices[0];
  STAGECOACH_ASSIGN_OR_RETURN(
      state, HostState::create(pinning, state_layouts(network),
                               state_options(network, static_cast<int>(options.rounds), residence(),
                                             update_mode(), moments),
                               {pool.get(), options.pin_watch}));
  for (int block = 0; block < state->block_count(); ++block) {
    if (state->is_frozen(block)) continue;
    while (state->version(block) < kFirstStep) state->skip(block);
  }
  STAGECOACH_RETURN_IF_ERROR(fill_constants());
  for (int turn = 0; turn < batches_in_flight(update_mode()); ++turn) {
    STAGECOACH_ASSIGN_OR_RETURN(
        std::unique_ptr<BatchStaging> batch,
        BatchStaging::create(pinning, network, shape, static_cast<int>(options.micro_batches)));
    staging.push_back(std::move(batch));
  }
  return Status::ok();
}

Status Trainer::Impl::fill_constants() {
  for (int block = 0; block < state->block_count(); ++block) {
    const ParameterBlock& info = network.blocks[block];
    if (!info.constant) continue;
    std::vector<float> values = info.constant();
    if (static_cast<int64_t>(values.size()) != info.element_count) {
      return invalid_argument(fmt::format("block '{}' has {} elements; its constant has {}",
                                          info.name, info.element_count, values.size()));
    }
    STAGECOACH_RETURN_IF_ERROR(state->write_parameters(block, 0, values));
  }
  return Status::ok();
}

Residence Trainer::Impl::residence() const {
  return binds_stages(options.schedule) ? Residence::kBound : Residence::kStreamed;
}

/// Refuses a plan that the host had no memory for when the run began, rather than being killed in
/// the middle of it.
Status Trainer::Impl::check_host(const PlannedRun& run) const {
  return check_host_need(host_need(network, request, residence(), run), limits);
}

/// Makes room for gradients of several passes, which the run was not admitted with.
Status Trainer::Impl::keep_gradients() {
  if (state->accumulates()) return Status::ok();
  HostNeed need = host_need(network, request, residence(), planned);
  need.state.landing += kept_gradient_bytes(network, request.rounds);
  STAGECOACH_RETURN_IF_ERROR(check_host_need(need, limits));
  host_planned_bytes = std::max(host_planned_bytes, need.total());
  return state->keep_gradients(*pool);
}

Pinning Trainer::Impl::pinning() const {
  Pinning pinning = state->pinning();
  pinning += store->pinning();
  for (const auto& batch : staging) pinning += batch->pinning();
  return pinning;
}

/// Gives devices the memory of a plan and runs by it from now on.
Status Trainer::Impl::adopt(PlannedRun next) {
  if (executor) {
    STAGECOACH_RETURN_IF_ERROR(executor->finish_reading());
    reading_wait_ns += executor->reading_wait_ns();
  }
  executor.reset();
  store.reset();
  planned = std::move(next);
  passes_of_plan = 0;
  last_pass.reset();
  steps_ns.clear();
  std::vector<ByteCount> boundary_bytes = home_boundaries(network, shape, planned);
  STAGECOACH_ASSIGN_OR_RETURN(store,
                              ActivationStore::create(*devices[0], boundary_bytes,
                                                      static_cast<int>(options.micro_batches)));
  StageExecutorSetup setup;
  setup.network = &network;
  planned_bytes.resize(devices.size(), request.device_update_bytes);
  for (size_t index = 0; index < planned.devices.size(); ++index) {
    int device = planned.devices[index];
    setup.devices.push_back(devices[device]);
    ByteCount bytes = used_before[device] + planned.arena_bytes[index];
    planned_bytes[device] = std::max(planned_bytes[device], bytes);
  }
  host_planned_bytes =
      std::max(host_planned_bytes, host_need(network, request, residence(), planned).total());
  setup.trace_processes = planned.devices;
  setup.host_state = state.get();
  setup.store = &*store;
  setup.host_worker = &worker;
  if (device_updates) {
    setup.update_queues = device_updates->queues();
    setup.update_streams = device_updates->streams();
  }
  setup.shape = shape;
  setup.arena_bytes = planned.arena_bytes;
  setup.resident_bytes = planned.resident_bytes;
  setup.recomputes = planned.recomputes;
  setup.update = update_mode();
  setup.first_step = steps_asked;
  setup.timeout_ns = options.timeout_ns;
  setup.bulk = options.bulk;
  for (int device : options.measured.empty() ? std::vector<int>() : planned.devices) {
    setup.measured_bulk.push_back(options.measured[device].bulk);
  }
  setup.left_out = options.left_out;
  STAGECOACH_ASSIGN_OR_RETURN(executor, StageExecutor::create(setup));
  for (size_t device = 0; device < planned.shares.size(); ++device) {
    if (planned.shares[device].used) continue;
    notes.push_back(fmt::format("device {} is left out: {}", devices[device]->id(),
                                planned.shares[device].reason));
  }
  return Status::ok();
}

/// What planning knows of the devices of `run`, in its order.
StepSetup Trainer::Impl::used_devices(const PlannedRun& run) const {
  StepSetup all = step_setup(network, request), used = all;
  used.devices.clear();
  for (int device : run.devices) used.devices.push_back(all.devices[device]);
  return used;
}

/// The last pass as the plan in use predicts it, in processes behind those of devices and host.
std::vector<TraceSlice> Trainer::Impl::predicted_pass() {
  if (!planned.predicted || !last_pass) return {};
  for (int device : planned.devices) {
    int process = static_cast<int>(devices.size()) + 1 + device;
    trace.name_process(process, "predicted " + devices[device]->id());
    trace.name_track(process, 0, lane_name(LaneKind::kCompute));
    last_pass->processes.push_back(process);
  }
  return predicted_slices(used_devices(planned), planned.slots, *last_pass);
}

/// Plans once more, with what has been measured, and changes over where that is worth it. No bit of
/// a result depends on it: sums are in the order of micro-batches whatever the stages.
Status Trainer::Impl::replan() {
  STAGECOACH_RETURN_IF_ERROR(drain());
  request.measured = tuner->take_measured();
  if (binds_stages(options.schedule) || request.is_static) {
    if (std::exchange(chooses_share, false)) {
      notes.emplace_back("optimizer.device_share = auto: 0, for stages that stay where they are");
    }
    return Status::ok();
  }
  STAGECOACH_ASSIGN_OR_RETURN(PlannedRun next, make_plan());
  if (chooses_share) {
    STAGECOACH_RETURN_IF_ERROR(choose_share(next));
    if (device_updates) return Status::ok();
  }
  bool same = next.devices == planned.devices && next.slots == planned.slots &&
              next.slot_devices == planned.slot_devices;
  StepSetup used = used_devices(planned);
  double now_ns = predict_step(used, CostTable(used.layers), planned.slots).step_ns;
  // Slots that were placed for other speeds do not move by themselves.
  bool misplaced = planned.slots.dispatch == SlotDispatch::kEarliestFinish &&
                   next.slot_devices != planned.slot_devices;
  bool better = next.predicted->step_ns < now_ns * (1 - RunTuner::kWorthChanging);
  if (same || (!better && !misplaced)) {
    planned.predicted = next.predicted;
    planned.predicted->step_ns = now_ns;
    return Status::ok();
  }
  // More stages may keep more boundaries than the run was admitted with.
  if (Status status = check_host(next); !status.is_ok()) {
    notes.push_back("keeps its plan, for a better one " + status.message());
    return Status::ok();
  }
  notes.push_back(fmt::format(
      "planned anew from measured times: {:.4g} ms a step instead of {:.4g} ms, {} stages on {} of "
      "{} devices",
      next.predicted->step_ns / 1e6, now_ns / 1e6, next.slots.stages.size(), next.devices.size(),
      devices.size()));
  return adopt(std::move(next));
}

/// What the host's work of a step took; where the host is paced, at its pace.
double Trainer::Impl::step_update_ns(const StepOutcome& step) const {
  auto taken_ns = static_cast<double>(step.host_ns);
  if (options.host_bytes_per_s <= 0) return taken_ns;
  double bytes = 0;
  for (int block = 0; block < state->block_count(); ++block) {
    if (state->is_frozen(block)) continue;
    bytes += static_cast<double>(gradient_bytes(*state, block));
    bool is_host = !device_updates || device_updates->updating_devices()[block] < 0;
    if (is_host) bytes += static_cast<double>(update_bytes(*state, block, rule));
  }
  return std::max(taken_ns, bytes / options.host_bytes_per_s * 1e9);
}

/// A plan beside updates on devices as chosen, which take memory there.
Result<PlannedRun> Trainer::Impl::plan_with_updates(const ShareChoice& choice) {
  PlanRequest before = request;
  request.device_update_bytes = DeviceUpdates::bytes(network);
  double factor = std::max(choice.host_updates_ns, choice.device_updates_ns) /
                  CostTable(request.measured->layers).update_ns();
  for (LayerProfile& layer : request.measured->layers) layer.update_ns *= factor;
  for (ByteCount& free : request.free_bytes) {
    free = std::max<ByteCount>(0, free - request.device_update_bytes);
  }
  Result<PlannedRun> next = make_plan();
  Status fits = next.is_ok() ? check_host(*next) : next.status();
  if (fits.is_ok()) return next;
  request = std::move(before);
  return fits;
}

/// With `optimizer.device_share` = "auto": decides once, by what has been measured, and changes
/// over. `next` is the plan without updates on devices.
Status Trainer::Impl::choose_share(const PlannedRun& next) {
  chooses_share = false;
  if (options.optimizer != "adamw" || options.moments != "fp32") {
    notes.emplace_back(
        "optimizer.device_share = auto: 0, since devices update adamw with fp32 moments only");
    return Status::ok();
  }
  ShareChoice choice = choose_device_share(used_devices(next), next.slots,
                                           DeviceUpdates::traffic(network, *state, rule));
  std::string told = fmt::format(
      "optimizer.device_share = auto: {:.4g} (updates take {:.4g} ms on the host alone)",
      choice.share, CostTable(request.measured->layers).update_ns() / 1e6);
  if (choice.share == 0) {
    notes.push_back(std::move(told));
    return Status::ok();
  }
  Result<PlannedRun> shared = plan_with_updates(choice);
  if (!shared.is_ok()) {
    notes.push_back("optimizer.device_share = auto: 0, for " + shared.status().message());
    return Status::ok();
  }
  executor.reset();  // its memory may be what updates need
  STAGECOACH_ASSIGN_OR_RETURN(
      device_updates, DeviceUpdates::create(devices, network, *state, rule, choice.share, *pool));
  if (options.trace) device_updates->set_trace(trace, static_cast<int>(devices.size()), 1);
  for (size_t device = 0; device < devices.size(); ++device) {
    used_before[device] += request.device_update_bytes;
    planned_bytes[device] = std::max(planned_bytes[device], used_before[device]);
  }
  notes.push_back(fmt::format("{}; {:.4g} ms a step instead of {:.4g} ms", told,
                              choice.step_ns / 1e6, choice.host_only_ns / 1e6));
  return adopt(std::move(shared).value());
}

/// Remembers when and where the last training pass ran.
void Trainer::Impl::note_pass(const FinishedPass& pass) {
  const Plan& plan = *pass.plan;
  if (!options.trace || plan.residence == Residence::kBound) return;
  last_pass.emplace();
  last_pass->start_ns = pass.report.start_ns;
  last_pass->iteration = static_cast<int32_t>(pass.iteration);
  if (planned.slots.dispatch != SlotDispatch::kRotation) return;
  for (int device = 0; device < plan.device_count(); ++device) {
    const std::vector<Action>& actions = plan.device_actions[device];
    if (!actions.empty() && actions.front() == Action{0, 0}) last_pass->first_device = device;
  }
}

/// Starts a pass with the batch that has been staged.
Status Trainer::Impl::start_pass(const Plan& plan, const BatchStaging& batch, PassInput& pass) {
  if (state->bytes().mapped > 0) {
    if (!base) return failed_precondition("a pass needs the mapped base, which was not given");
    STAGECOACH_RETURN_IF_ERROR(base->check_unchanged());
  }
  pass.iteration = static_cast<uint32_t>(iteration);
  pass.seed = options.seed;
  batch.fill_views(pass);
  return executor->start(plan, pass, options.trace ? &trace : nullptr);
}

/// A pass without gradients, to its end.
Status Trainer::Impl::run_inference(const BatchStaging& batch) {
  PassInput pass;
  pass.inference = true;
  STAGECOACH_RETURN_IF_ERROR(start_pass(planned.inference_plan, batch, pass));
  return drain();
}

/// Everything that is under way ends.
Status Trainer::Impl::drain() {
  STAGECOACH_RETURN_IF_ERROR(executor->finish(0, 0));
  take_finished();
  return Status::ok();
}

/// Takes note of passes and steps that have ended.
void Trainer::Impl::take_finished() {
  for (const FinishedPass& pass : executor->take_passes()) {
    const IterationReport& report = pass.report;
    bytes_up += report.bytes_up;
    bytes_down += report.bytes_down;
    if (pass.inference) continue;
    tuner->add_pass(*pass.plan, planned.devices, report);
    note_pass(pass);
    controller_fractions.push_back(report.controller_fraction);
    simulated_bubbles.push_back(report.bubble_simulated);
    bubbles[pass.step].push_back(report.bubble);
    waited_ns += report.update_wait_ns;
  }
  for (const StepOutcome& step : executor->take_steps()) {
    ended_steps.push_back(step);
    tuner->add_update(step_update_ns(step));
  }
  // A step is told of with its passes, whose reports may come after it.
  while (!ended_steps.empty()) {
    const StepOutcome& step = ended_steps.front();
    auto of_step = bubbles.find(step.step);
    if (of_step == bubbles.end() || of_step->second.size() < passes_of_step[step.step]) {
      return;
    }
    StepUpdate update;
    update.iteration = iteration - (steps_asked - 1 - step.step);
    if (scales_loss()) update.loss_scale = scale_of_step[step.step];
    update.gradient_norm =
        judge_gradients(step.sum_of_squares, update.loss_scale, options.clip_norm).norm;
    update.skipped = step.verdict.skip;
    scale_of_step.erase(step.step);
    for (double bubble : of_step->second) {
      update.bubble += bubble / static_cast<double>(of_step->second.size());
    }
    updates.push_back(update);
    bubbles.erase(of_step);
    passes_of_step.erase(step.step);
    ended_steps.pop_front();
  }
}

Result<StepLoss> Trainer::Impl::pass_loss(const BatchStaging& batch, int64_t targets) {
  StepLoss loss;
  loss.targets = targets;
  loss.loss = batch.sum_of_losses() / static_cast<double>(targets);
  if (!std::isfinite(loss.loss)) {
    return data_loss(fmt::format("the loss is {}", loss.loss));
  }
  return loss;
}

Result<StepLoss> Trainer::forward_backward(const HostTensor& inputs, const HostTensor& labels,
                                           const LossOptions& loss,
                                           const HostTensor& document_starts) {
  Impl& impl = *impl_;
  const BatchStaging& checks = *impl.staging.front();
  STAGECOACH_ASSIGN_OR_RETURN(int64_t targets, checks.count_targets(inputs, labels, false));
  STAGECOACH_RETURN_IF_ERROR(checks.check_document_starts(document_starts, inputs.shape[0]));
  if (targets == 0) {
    // Nothing to learn from: its gradient is zero.
    impl.masked_pass_pending = true;
    return StepLoss{};
  }
  if (impl.gradients_pending) {
    STAGECOACH_RETURN_IF_ERROR(impl.drain());
    STAGECOACH_RETURN_IF_ERROR(impl.keep_gradients());
  } else {
    // The batch before the last has been used.
    STAGECOACH_RETURN_IF_ERROR(impl.executor->finish(impl.staging.size() - 1, 2));
    impl.take_finished();
  }
  BatchStaging& batch = impl.next_staging();
  batch.load(inputs, labels, document_starts);
  PassInput pass;
  STAGECOACH_ASSIGN_OR_RETURN(double scale, impl.loss_scale_of_pass());
  pass.loss_scale = static_cast<float>(
      scale / static_cast<double>(loss.step_targets > 0 ? loss.step_targets : targets));
  pass.loss_terms.z_loss = static_cast<float>(impl.options.z_loss);
  pass.loss_terms.label_smoothing = static_cast<float>(impl.options.label_smoothing);
  pass.times_layers = impl.tuner->times_layers();
  const Plan& plan = impl.planned.plan_of_pass(impl.passes_of_plan++);
  ++impl.passes_of_step[impl.steps_asked];
  STAGECOACH_RETURN_IF_ERROR(impl.start_pass(plan, batch, pass));
  impl.gradients_pending = true;
  if (impl.update_mode() == UpdateMode::kBarrier) STAGECOACH_RETURN_IF_ERROR(impl.drain());
  STAGECOACH_ASSIGN_OR_RETURN(StepLoss result, impl.pass_loss(batch, targets));
  result.router_loss = batch.mean_of_reports();
  if (result.router_loss) *result.router_loss /= static_cast<double>(targets);
  return result;
}

Result<StepLoss> Trainer::evaluate(const HostTensor& inputs, const HostTensor& labels,
                                   const HostTensor& document_starts) {
  const BatchStaging& checks = *impl_->staging.front();
  STAGECOACH_ASSIGN_OR_RETURN(int64_t targets, checks.count_targets(inputs, labels, true));
  STAGECOACH_RETURN_IF_ERROR(checks.check_document_starts(document_starts, inputs.shape[0]));
  if (targets == 0) return StepLoss{};
  STAGECOACH_RETURN_IF_ERROR(impl_->drain());
  BatchStaging& batch = impl_->next_staging();
  batch.load(inputs, labels, document_starts);
  STAGECOACH_RETURN_IF_ERROR(impl_->run_inference(batch));
  return impl_->pass_loss(batch, targets);
}

Result<std::vector<float>> Trainer::forward(const HostTensor& inputs) {
  STAGECOACH_RETURN_IF_ERROR(impl_->drain());
  BatchStaging& batch = impl_->next_staging();
  STAGECOACH_RETURN_IF_ERROR(batch.load_inputs(inputs));
  STAGECOACH_RETURN_IF_ERROR(impl_->run_inference(batch));
  return batch.outputs(inputs.shape[0]);
}

/// What the loss of a pass that begins now is multiplied by. The state after a certain step's
/// verdict, so that it does not depend on what happens to have ended.
Result<double> Trainer::Impl::loss_scale_of_pass() {
  if (!scales_loss()) return 1.0;
  int64_t known = steps_asked - (update_mode() == UpdateMode::kAsync ? 1 : 0);
  STAGECOACH_RETURN_IF_ERROR(executor->await_verdicts(known));
  double scale = loss_scales.value_before(known);
  scale_of_step[steps_asked] = scale;
  return scale;
}

Status Trainer::step(double learning_rate) {
  Impl& impl = *impl_;
  bool is_masked = std::exchange(impl.masked_pass_pending, false) && !impl.gradients_pending;
  if (is_masked) {
    ++impl.masked_steps;
    impl.notes.push_back(fmt::format(
        "a step is skipped because every label of its batches is ignored: {} of {} so far",
        impl.masked_steps, impl.masked_steps + impl.iteration));
    return Status::ok();
  }
  if (!impl.gradients_pending) {
    return failed_precondition("step() needs a forward_backward() before it");
  }
  int64_t start_ns = RealClock::instance().now_ns();
  StepOptimizer::Setup setup;
  setup.network = &impl.network;
  setup.state = impl.state.get();
  setup.groups = impl.groups;
  setup.numbers = common_update_numbers(impl.options, impl.iteration + 1);
  setup.learning_rate = learning_rate;
  setup.clip_norm = impl.options.clip_norm;
  setup.step = impl.steps_asked;
  if (impl.device_updates) {
    setup.device_updaters = impl.device_updates->updaters();
    setup.updating_devices = impl.device_updates->updating_devices();
  }
  if (impl.scales_loss()) {
    setup.loss_scale = impl.scale_of_step[impl.steps_asked];
    setup.loss_scales = &impl.loss_scales;
  }
  STAGECOACH_RETURN_IF_ERROR(
      impl.executor->start_step(std::make_shared<StepOptimizer>(std::move(setup))));
  ++impl.steps_asked;
  ++impl.iteration;
  impl.gradients_pending = false;
  // Passes that are measured follow each other.
  bool is_barrier = impl.update_mode() == UpdateMode::kBarrier;
  bool is_measured = !impl.tuner->is_settled();
  if (is_barrier || is_measured) STAGECOACH_RETURN_IF_ERROR(impl.drain());
  impl.take_finished();
  if (is_barrier || !is_measured) impl.note_step(start_ns);
  if (impl.tuner->is_due()) STAGECOACH_RETURN_IF_ERROR(impl.replan());
  return Status::ok();
}

/// Takes note of what the iteration that ends now took; its step() began at `start_ns`.
void Trainer::Impl::note_step(int64_t start_ns) {
  int64_t now_ns = RealClock::instance().now_ns();
  auto step_ns = static_cast<double>(now_ns - iteration_began_ns);
  double waited = static_cast<double>(now_ns - start_ns) + waited_ns;
  if (iteration_began_ns > 0) {
    exposed_fractions.push_back(std::min(1.0, waited / step_ns));
    steps_ns.push_back(step_ns);
  }
  iteration_began_ns = now_ns;
  waited_ns = 0;
}

Status Trainer::synchronize() {
  STAGECOACH_RETURN_IF_ERROR(impl_->drain());
  STAGECOACH_RETURN_IF_ERROR(impl_->worker.status());
  if (impl_->device_updates) STAGECOACH_RETURN_IF_ERROR(impl_->device_updates->status());
  return wait_until_reached(impl_->worker.last_submitted());
}

Status Trainer::begin_reading(std::shared_ptr<BlockReader> reader) {
  STAGECOACH_RETURN_IF_ERROR(finish_reading());
  if (impl_->scales_loss()) {
    STAGECOACH_RETURN_IF_ERROR(impl_->executor->await_verdicts(impl_->steps_asked));
  }
  return impl_->executor->start_reading(std::move(reader));
}

bool Trainer::is_reading() const {
  return impl_->executor->is_reading();
}

Status Trainer::finish_reading() {
  STAGECOACH_RETURN_IF_ERROR(impl_->executor->finish_reading());
  impl_->take_finished();
  return Status::ok();
}

int64_t Trainer::reading_wait_ns() const {
  return impl_->reading_wait_ns + impl_->executor->reading_wait_ns();
}

const HostState& Trainer::host_state() const {
  return *impl_->state;
}

std::vector<StepUpdate> Trainer::take_updates() {
  return std::exchange(impl_->updates, {});
}

const Network& Trainer::network() const {
  return impl_->network;
}
void Trainer::read_parameters(int block, int64_t offset, std::span<float> out) const {
  STAGECOACH_CHECK(impl_->executor->is_idle());
  impl_->state->read_parameters(block, offset, out);
}
Status Trainer::write_parameters(int block, int64_t offset, std::span<const float> values) {
  STAGECOACH_CHECK(impl_->executor->is_idle() && !is_reading());
  return impl_->state->write_parameters(block, offset, values);
}
const MomentOptions& Trainer::moments() const {
  return impl_->moments;
}
void Trainer::read_moment(Moment moment, int block, int64_t offset, std::span<float> out) const {
  STAGECOACH_CHECK(impl_->executor->is_idle());
  impl_->state->read_moment(moment, block, offset, out);
}
MomentView Trainer::moment(Moment moment, int block, int64_t offset, int64_t count) {
  STAGECOACH_CHECK(impl_->executor->is_idle());
  return impl_->state->moment(moment, block, offset, count);
}
bool Trainer::keeps_previous() const {
  return impl_->update_mode() == UpdateMode::kAsync;
}
std::span<const std::byte> Trainer::previous_copy(int block, int64_t offset, int64_t count) const {
  STAGECOACH_CHECK(impl_->executor->is_idle() && keeps_previous());
  const HostState& state = *impl_->state;
  ByteCount size = dtype_size_bytes(impl_->network.dtype);
  BufferView copy = state.compute_copy(block, state.version(block) - 1);
  return {reinterpret_cast<const std::byte*>(copy.host_data()) + offset * size,
          static_cast<size_t>(count * size)};
}
void Trainer::write_previous_copy(int block, int64_t offset, std::span<const std::byte> values) {
  STAGECOACH_CHECK(impl_->executor->is_idle() && keeps_previous());
  impl_->state->write_previous_copy(block, offset, values);
}
int64_t Trainer::iteration() const {
  return impl_->iteration;
}
void Trainer::set_iteration(int64_t iteration) {
  impl_->iteration = iteration;
}
const LossScale& Trainer::loss_scale() const {
  return impl_->loss_scales.latest;
}
double Trainer::previous_loss_scale() const {
  return impl_->loss_scales.value_before(impl_->steps_asked - 1);
}
void Trainer::set_loss_scale(const LossScale& scale, double previous_value) {
  STAGECOACH_CHECK(impl_->steps_asked == kFirstStep);
  impl_->loss_scales.restart(scale, previous_value);
}
const Plan& Trainer::plan() const {
  return impl_->planned.training_plans.front();
}
const MeasuredRun* Trainer::measured() const {
  return impl_->tuner->has_measured() ? &impl_->tuner->measured() : nullptr;
}
std::vector<std::string> Trainer::take_notes() {
  return std::exchange(impl_->notes, {});
}
const Trace& Trainer::trace() {
  for (const TraceSlice& slice : impl_->predicted_pass()) impl_->trace.add(slice);
  impl_->last_pass.reset();
  return impl_->trace;
}

void Trainer::Impl::initialize(int block) {
  for (const ParameterInfo& parameter : network.blocks[block].parameters) {
    Status status = for_each_float_piece(
        parameter.shape.element_count(), [&](int64_t first, std::span<float> piece) {
          fill_initial(parameter, options.seed, first, piece, *pool);
          return state->write_parameters(block, parameter.offset + first, piece);
        });
    STAGECOACH_CHECK(status.is_ok());  // initializers yield finite numbers
  }
}

void Trainer::initialize_parameters() {
  STAGECOACH_CHECK(impl_->executor->is_idle() && !is_reading());
  for (int block = 0; block < impl_->state->block_count(); ++block) {
    if (!impl_->state->is_mapped(block)) impl_->initialize(block);
  }
}

void Trainer::initialize_adapters() {
  STAGECOACH_CHECK(impl_->executor->is_idle() && !is_reading());
  for (int block = 0; block < impl_->state->block_count(); ++block) {
    if (impl_->network.blocks[block].is_adapter) impl_->initialize(block);
  }
}

Status Trainer::map_base(std::shared_ptr<const MappedWeights> base) {
  STAGECOACH_CHECK(impl_->executor->is_idle() && !impl_->base);
  for (const MappedWeightPart& part : base->parts()) {
    STAGECOACH_RETURN_IF_ERROR(impl_->state->map(part.block, part.offset, part.memory));
  }
  impl_->base = std::move(base);
  return Status::ok();
}

Status Trainer::set_parameter_group(const std::vector<std::string>& name_suffixes,
                                    ParameterGroup group) {
  bool matched = false;
  for (size_t block = 0; block < impl_->network.blocks.size(); ++block) {
    const std::vector<ParameterInfo>& parameters = impl_->network.blocks[block].parameters;
    for (size_t index = 0; index < parameters.size(); ++index) {
      if (!ends_with_any(parameters[index].name, name_suffixes)) continue;
      impl_->groups[block][index] = group;
      matched = true;
    }
  }
  if (!matched) return invalid_argument("no parameter's name ends with any of the given suffixes");
  return Status::ok();
}

TrainerReport Trainer::report() const {
  const Impl& impl = *impl_;
  TrainerReport report;
  report.schedule = impl.options.schedule;
  report.update = impl.options.update;
  report.activations = impl.planned.recomputes ? "recompute" : "keep";
  report.controller_fraction = median(impl.controller_fractions);
  report.update_exposed_fraction = median(impl.exposed_fractions);
  report.bubble_simulated = median(impl.simulated_bubbles);
  int64_t busy_ns = 0, overrun_ns = 0;
  for (Device* device : impl.devices) {
    report.devices.push_back(device->id());
    Result<MemoryUsage> usage = device->memory_usage();
    report.device_peak_bytes.push_back(usage.is_ok() ? usage->peak_bytes : 0);
    DeviceCounters counters = device->counters();
    busy_ns += counters.compute_busy_ns;
    overrun_ns += counters.overrun_ns;
  }
  if (busy_ns > 0) report.overrun = static_cast<double>(overrun_ns) / static_cast<double>(busy_ns);
  report.state_bytes = impl.state->bytes().state();
  report.mapped_bytes = impl.state->bytes().mapped;
  report.landing_bytes = impl.state->bytes().landing;
  report.host_state_bytes_per_parameter =
      static_cast<double>(report.state_bytes) / static_cast<double>(impl.network.parameter_count());
  report.host_planned_bytes = impl.host_planned_bytes;
  report.pinning = impl.pinning();
  report.bytes_up = impl.bytes_up;
  report.bytes_down = impl.bytes_down;
  if (impl.device_updates) report.device_share = impl.device_updates->share();
  report.shares = impl.planned.shares;
  report.device_planned_bytes = impl.planned_bytes;
  if (impl.planned.predicted) report.step_predicted_ns = impl.planned.predicted->step_ns;
  report.step_ns = median(impl.steps_ns);
  return report;
}

std::string Trainer::weights_sha256() const {
  Sha256 digest;
  for (size_t block = 0; block < impl_->network.blocks.size(); ++block) {
    if (impl_->network.blocks[block].is_frozen) continue;
    for (const ParameterInfo& parameter : impl_->network.blocks[block].parameters) {
      Status status = for_each_float_piece(
          parameter.shape.element_count(), [&](int64_t first, std::span<float> piece) {
            read_parameters(static_cast<int>(block), parameter.offset + first, piece);
            digest.update(piece.data(), static_cast<ByteCount>(piece.size_bytes()));
            return Status::ok();
          });
      STAGECOACH_CHECK(status.is_ok());  // reading cannot fail
    }
  }
  return digest.hex();
}

}  // namespace stagecoach
