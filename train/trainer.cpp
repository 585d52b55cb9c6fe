#include "train/trainer.h"

#include <cmath>
#include <fmt/format.h>
#include <utility>

#include "core/clock.h"
#include "core/settings.h"
#include "scheduler/network_state.h"
#include "train/run_memory.h"
#include "train/trainer_impl.h"

namespace stagecoach {

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

std::vector<StepUpdate> Trainer::take_updates() {
  return std::exchange(impl_->updates, {});
}

}  // namespace stagecoach
