#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
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
#include "train/initial_values.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/predicted_slices.h"
#include "train/trainer_options.h"

namespace stagecoach {

namespace {

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
        pool(TaskPool::create(threads)),
        worker("host", *pool) {}

  Status build();
  Status prepare_request();
  Result<PlannedRun> make_plan() const;
  std::vector<ByteCount> boundaries(const PlannedRun& run) const;
  Status check_host(const PlannedRun* run) const;
  Status build_state();
  Status adopt(PlannedRun next);
  Status replan();
  StepSetup used_devices(const PlannedRun& run) const;
  std::vector<TraceSlice> predicted_pass();
  void note_pass(const Plan& plan, const IterationReport& report);
  Result<IterationReport> run_pass(const Plan& plan, PassInput& pass);
  Result<StepLoss> pass_loss(const PassInput& pass, int64_t targets, double bubble);
  Status run_on_host(Label label, HostWorkCost cost, HostWorker::Job job);
  Status update_block(int block, const UpdateNumbers& common, double learning_rate);

  Network network;
  std::vector<Device*> devices;
  TrainerOptions options;
  std::unique_ptr<TaskPool> pool;
  MicroBatchShape shape;
  PlanRequest request;
  PlannedRun planned;
  std::vector<ByteCount> used_before;    ///< per device: what its backend takes or sets aside
  std::vector<ByteCount> planned_bytes;  ///< per device: the most with any plan so far
  std::optional<RunTuner> tuner;
  std::vector<std::string> notes;
  std::vector<std::vector<ParameterGroup>> groups;  ///< per block, per parameter
  std::unique_ptr<HostState> state;
  std::optional<ActivationStore> store;
  std::unique_ptr<BatchStaging> staging;
  Trace trace;
  // The worker's jobs and the executor's streams use what is above, so they go first.
  HostWorker worker;
  std::unique_ptr<StageExecutor> executor;

  int64_t iteration = 0;
  int64_t passes_of_plan = 0;  ///< the rotation continues across them
  std::optional<PredictedPass> last_pass;
  bool gradients_pending = false;
  int64_t pass_ns = 0;
  std::vector<double> controller_fractions, exposed_fractions, simulated_bubbles;
  std::vector<double> steps_ns;  ///< whole steps since the plan was adopted
  ByteCount bytes_up = 0, bytes_down = 0;
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
  STAGECOACH_RETURN_IF_ERROR(check_host(nullptr));
  STAGECOACH_ASSIGN_OR_RETURN(PlannedRun first, make_plan());
  STAGECOACH_RETURN_IF_ERROR(check_host(&first));
  STAGECOACH_RETURN_IF_ERROR(build_state());
  STAGECOACH_RETURN_IF_ERROR(adopt(std::move(first)));
  StepSetup setup = step_setup(network, request);
  tuner.emplace(std::move(setup.layers), std::move(setup.devices));
  for (const ParameterBlock& block : network.blocks) {
    std::vector<ParameterGroup> of_block;
    for (const ParameterInfo& parameter : block.parameters) {
      of_block.push_back({1.0, parameter.decay ? options.weight_decay : 0.0});
    }
    groups.push_back(std::move(of_block));
  }
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
  }
  return Status::ok();
}

Status Trainer::Impl::prepare_request() {
  for (Device* device : devices) {
    STAGECOACH_ASSIGN_OR_RETURN(MemoryUsage usage, device->memory_usage());
    request.devices.push_back(device->info());
    request.free_bytes.push_back(usage.total_bytes - usage.used_bytes);
    used_before.push_back(usage.used_bytes);
  }
  request.shape = shape;
  request.micro_batches = static_cast<int>(options.micro_batches);
  request.rounds = static_cast<int>(options.rounds);
  request.max_stage_layers = static_cast<int>(options.max_stage_layers);
  request.is_static = options.dispatch == "static";
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
  Residence residence = binds_stages(options.schedule) ? Residence::kBound : Residence::kStreamed;
  STAGECOACH_ASSIGN_OR_RETURN(
      state,
      HostState::create(pinning, state_layouts(network),
                        state_options(network, static_cast<int>(options.rounds), residence)));
  STAGECOACH_ASSIGN_OR_RETURN(
      staging,
      BatchStaging::create(pinning, network, shape, static_cast<int>(options.micro_batches)));
  return Status::ok();
}

/// Bytes of each boundary of one micro-batch that some plan of `run` brings home; 0: none does.
std::vector<ByteCount> Trainer::Impl::boundaries(const PlannedRun& run) const {
  int layer_count = static_cast<int>(network.layers.size());
  std::vector<bool> training = stage_starts(run.training_plans.front().stages, layer_count);
  std::vector<bool> inference = stage_starts(run.inference_plan.stages, layer_count);
  std::vector<ByteCount> bytes(layer_count + 1, 0);
  for (int boundary = 1; boundary < layer_count; ++boundary) {
    if (!training[boundary] && !inference[boundary]) continue;
    bytes[boundary] = network.layers[boundary]->input().size_bytes(shape);
  }
  return bytes;
}

/// Refuses a run that the host has no memory for, rather than being killed in the middle of it.
/// Without `run`, by what does not depend on a plan: plans of too many micro-batches are none.
Status Trainer::Impl::check_host(const PlannedRun* run) const {
  auto micro_batches = static_cast<int>(options.micro_batches);
  Residence residence = binds_stages(options.schedule) ? Residence::kBound : Residence::kStreamed;
  HostNeed need;
  need.state = host_state_bytes(
      state_layouts(network), state_options(network, static_cast<int>(options.rounds), residence));
  need.staging = BatchStaging::bytes(network, shape, micro_batches);
  if (run != nullptr) {
    need.boundaries = ActivationStore::bytes(boundaries(*run), micro_batches);
    for (size_t index = 0; index < run->devices.size(); ++index) {
      bool is_mock = request.devices[run->devices[index]].backend == "cpu";
      if (is_mock) need.devices += run->arena_bytes[index];
    }
  }
  STAGECOACH_ASSIGN_OR_RETURN(HostLimits limits, read_host_limits());
  return check_host_need(need, limits);
}

/// Gives devices the memory of a plan and runs by it from now on.
Status Trainer::Impl::adopt(PlannedRun next) {
  executor.reset();
  store.reset();
  planned = std::move(next);
  passes_of_plan = 0;
  last_pass.reset();
  steps_ns.clear();
  std::vector<ByteCount> boundary_bytes = boundaries(planned);
  STAGECOACH_ASSIGN_OR_RETURN(store,
                              ActivationStore::create(*devices[0], boundary_bytes,
                                                      static_cast<int>(options.micro_batches)));
  StageExecutorSetup setup;
  setup.network = &network;
  planned_bytes.resize(devices.size(), 0);
  for (size_t index = 0; index < planned.devices.size(); ++index) {
    int device = planned.devices[index];
    setup.devices.push_back(devices[device]);
    ByteCount bytes = used_before[device] + planned.arena_bytes[index];
    planned_bytes[device] = std::max(planned_bytes[device], bytes);
  }
  setup.trace_processes = planned.devices;
  setup.host_state = state.get();
  setup.store = &*store;
  setup.host_worker = &worker;
  setup.shape = shape;
  setup.arena_bytes = planned.arena_bytes;
  setup.recomputes = planned.recomputes;
  setup.timeout_ns = options.timeout_ns;
  setup.bulk = options.bulk;
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
  request.measured = tuner->take_measured();
  if (binds_stages(options.schedule) || request.is_static) return Status::ok();
  STAGECOACH_ASSIGN_OR_RETURN(PlannedRun next, make_plan());
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
  notes.push_back(fmt::format(
      "planned anew from measured times: {:.4g} ms a step instead of {:.4g} ms, {} stages on {} of "
      "{} devices",
      next.predicted->step_ns / 1e6, now_ns / 1e6, next.slots.stages.size(), next.devices.size(),
      devices.size()));
  return adopt(std::move(next));
}

/// Remembers when and where the last training pass ran.
void Trainer::Impl::note_pass(const Plan& plan, const IterationReport& report) {
  if (!options.trace || plan.residence == Residence::kBound) return;
  last_pass.emplace();
  last_pass->start_ns = report.start_ns;
  last_pass->iteration = static_cast<int32_t>(iteration);
  if (planned.slots.dispatch != SlotDispatch::kRotation) return;
  for (int device = 0; device < plan.device_count(); ++device) {
    const std::vector<Action>& actions = plan.device_actions[device];
    if (!actions.empty() && actions.front() == Action{0, 0}) last_pass->first_device = device;
  }
}

Result<IterationReport> Trainer::Impl::run_pass(const Plan& plan, PassInput& pass) {
  pass.iteration = static_cast<uint32_t>(iteration);
  pass.seed = options.seed;
  staging->fill_views(pass);
  STAGECOACH_ASSIGN_OR_RETURN(IterationReport report,
                              executor->run(plan, pass, options.trace ? &trace : nullptr));
  bytes_up += report.bytes_up;
  bytes_down += report.bytes_down;
  return report;
}

Result<StepLoss> Trainer::Impl::pass_loss(const PassInput& pass, int64_t targets, double bubble) {
  StepLoss loss;
  loss.targets = targets;
  loss.bubble = bubble;
  loss.loss = staging->sum_of_losses() / static_cast<double>(targets);
  if (!std::isfinite(loss.loss)) {
    return data_loss(fmt::format("the loss is {}", loss.loss));
  }
  return loss;
}

Result<StepLoss> Trainer::forward_backward(const HostTensor& inputs, const HostTensor& labels,
                                           const LossOptions& loss) {
  Impl& impl = *impl_;
  STAGECOACH_ASSIGN_OR_RETURN(int64_t targets, impl.staging->load(inputs, labels, false));
  if (impl.gradients_pending) {
    STAGECOACH_RETURN_IF_ERROR(impl.state->keep_gradients(*impl.pool));
  }
  int64_t start_ns = RealClock::instance().now_ns();
  PassInput pass;
  pass.loss_scale = static_cast<float>(
      1.0 / static_cast<double>(loss.step_targets > 0 ? loss.step_targets : targets));
  pass.times_layers = impl.tuner->times_layers();
  const Plan& plan = impl.planned.plan_of_pass(impl.passes_of_plan++);
  STAGECOACH_ASSIGN_OR_RETURN(IterationReport report, impl.run_pass(plan, pass));
  impl.tuner->add_pass(plan, impl.planned.devices, report);
  impl.note_pass(plan, report);
  impl.gradients_pending = true;
  impl.pass_ns += RealClock::instance().now_ns() - start_ns;
  impl.controller_fractions.push_back(report.controller_fraction);
  impl.simulated_bubbles.push_back(report.bubble_simulated);
  return impl.pass_loss(pass, targets, report.bubble);
}

Result<StepLoss> Trainer::evaluate(const HostTensor& inputs, const HostTensor& labels) {
  Impl& impl = *impl_;
  STAGECOACH_ASSIGN_OR_RETURN(int64_t targets, impl.staging->load(inputs, labels, true));
  PassInput pass;
  pass.inference = true;
  STAGECOACH_ASSIGN_OR_RETURN(IterationReport report,
                              impl.run_pass(impl.planned.inference_plan, pass));
  return impl.pass_loss(pass, targets, report.bubble);
}

Result<std::vector<float>> Trainer::forward(const HostTensor& inputs) {
  Impl& impl = *impl_;
  STAGECOACH_RETURN_IF_ERROR(impl.staging->load_inputs(inputs));
  PassInput pass;
  pass.inference = true;
  STAGECOACH_RETURN_IF_FAILED(impl.run_pass(impl.planned.inference_plan, pass));
  return impl.staging->outputs(inputs.shape[0]);
}

Status Trainer::Impl::run_on_host(Label label, HostWorkCost cost, HostWorker::Job job) {
  STAGECOACH_ASSIGN_OR_RETURN(Timepoint done, worker.submit(label, cost, std::move(job)));
  return wait_until_reached(done);
}

Status Trainer::Impl::update_block(int block, const UpdateNumbers& common, double learning_rate) {
  const ParameterBlock& info = network.blocks[block];
  if (info.is_frozen) return Status::ok();
  for (size_t index = 0; index < info.parameters.size(); ++index) {
    const ParameterInfo& parameter = info.parameters[index];
    const ParameterGroup& group = groups[block][index];
    UpdateNumbers numbers = common;
    numbers.learning_rate = static_cast<float>(learning_rate * group.learning_rate_scale);
    numbers.weight_decay = static_cast<float>(group.weight_decay);
    int64_t refused = update_parameters(*state, block, parameter.offset,
                                        parameter.shape.element_count(), numbers, *pool);
    if (refused == 0) continue;
    return data_loss(
        fmt::format("update {}: {} of {} elements of '{}' or their moments would not be finite",
                    common.step, refused, parameter.shape.element_count(), parameter.name));
  }
  return Status::ok();
}

Result<StepUpdate> Trainer::step(double learning_rate) {
  Impl& impl = *impl_;
  if (!impl.gradients_pending) {
    return failed_precondition("step() needs a forward_backward() before it");
  }
  int64_t start_ns = RealClock::instance().now_ns();
  double sum = 0;
  HostWorkCost norm_cost, update_cost;
  for (int block = 0; block < impl.state->block_count(); ++block) {
    norm_cost.bytes_touched += gradient_bytes(*impl.state, block);
    update_cost.bytes_touched += update_bytes(*impl.state, block, UpdateRule::kAdamW);
  }
  STAGECOACH_RETURN_IF_ERROR(impl.run_on_host("norm", norm_cost, [&](TaskPool& pool) {
    sum = gradient_sum_of_squares(*impl.state, pool);
    return Status::ok();
  }));
  StepUpdate update;
  update.gradient_norm = std::sqrt(sum);
  if (!std::isfinite(update.gradient_norm)) {
    return data_loss(fmt::format("the gradient norm is {}", update.gradient_norm));
  }
  UpdateNumbers common;
  common.beta1 = static_cast<float>(impl.options.beta1);
  common.beta2 = static_cast<float>(impl.options.beta2);
  common.epsilon = static_cast<float>(impl.options.epsilon);
  common.step = impl.iteration + 1;
  double clip = impl.options.clip_norm;
  if (clip > 0 && update.gradient_norm > clip) {
    common.gradient_scale = static_cast<float>(clip / update.gradient_norm);
  }
  STAGECOACH_RETURN_IF_ERROR(impl.run_on_host("update", update_cost, [&](TaskPool&) {
    Status status = Status::ok();
    for (int block = 0; status.is_ok() && block < impl.state->block_count(); ++block) {
      status = impl.update_block(block, common, learning_rate);
    }
    return status;
  }));
  impl.state->clear_gradients();
  impl.gradients_pending = false;
  ++impl.iteration;
  double step_ns = static_cast<double>(RealClock::instance().now_ns() - start_ns);
  impl.exposed_fractions.push_back(step_ns / (step_ns + static_cast<double>(impl.pass_ns)));
  impl.steps_ns.push_back(step_ns + static_cast<double>(impl.pass_ns));
  impl.pass_ns = 0;
  impl.tuner->add_update(step_ns);
  if (impl.tuner->is_due()) STAGECOACH_RETURN_IF_ERROR(impl.replan());
  return update;
}

Status Trainer::synchronize() {
  STAGECOACH_RETURN_IF_ERROR(impl_->worker.status());
  return wait_until_reached(impl_->worker.last_submitted());
}

const Network& Trainer::network() const {
  return impl_->network;
}
void Trainer::read_parameters(int block, int64_t offset, std::span<float> out) const {
  impl_->state->read_parameters(block, offset, out);
}
Status Trainer::write_parameters(int block, int64_t offset, std::span<const float> values) {
  return impl_->state->write_parameters(block, offset, values);
}
void Trainer::read_moment(Moment moment, int block, int64_t offset, std::span<float> out) const {
  impl_->state->read_moment(moment, block, offset, out);
}
void Trainer::write_moment(Moment moment, int block, int64_t offset,
                           std::span<const float> values) {
  impl_->state->write_moment(moment, block, offset, values);
}
int64_t Trainer::iteration() const {
  return impl_->iteration;
}
void Trainer::set_iteration(int64_t iteration) {
  impl_->iteration = iteration;
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

void Trainer::initialize_parameters() {
  for (int block = 0; block < impl_->state->block_count(); ++block) {
    for (const ParameterInfo& parameter : impl_->network.blocks[block].parameters) {
      Status status = for_each_float_piece(
          parameter.shape.element_count(), [&](int64_t first, std::span<float> piece) {
            fill_initial(parameter, impl_->options.seed, first, piece, *impl_->pool);
            return write_parameters(block, parameter.offset + first, piece);
          });
      STAGECOACH_CHECK(status.is_ok());  // initializers yield finite numbers
    }
  }
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
  report.landing_bytes = impl.state->bytes().landing;
  report.host_state_bytes_per_parameter =
      static_cast<double>(report.state_bytes) / static_cast<double>(impl.network.parameter_count());
  report.bytes_up = impl.bytes_up;
  report.bytes_down = impl.bytes_down;
  report.shares = impl.planned.shares;
  report.device_planned_bytes = impl.planned_bytes;
  if (impl.planned.predicted) report.step_predicted_ns = impl.planned.predicted->step_ns;
  report.step_ns = median(impl.steps_ns);
  return report;
}

std::string Trainer::weights_sha256() const {
  Sha256 digest;
  for (size_t block = 0; block < impl_->network.blocks.size(); ++block) {
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
