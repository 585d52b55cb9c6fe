#include "scheduler/stage_executor.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "core/clock.h"
#include "scheduler/executable_plan.h"

namespace stagecoach {

namespace {

/// Adapts a lambda to the submit thread's interface without allocating.
template <typename Function>
class SubmitWork final : public Submitter::Work {
 public:
  explicit SubmitWork(Function function) : function_(std::move(function)) {}
  Status execute() override { return function_(); }

 private:
  Function function_;
};

std::vector<bool> frozen_blocks(const Network& network) {
  std::vector<bool> frozen;
  for (const ParameterBlock& block : network.blocks) frozen.push_back(block.is_frozen);
  return frozen;
}

/// Per boundary: whether a gradient is handed over there.
std::vector<bool> gradient_boundaries(const Network& network, const PlanContext& context) {
  std::vector<bool> travels(network.layers.size() + 1, false);
  for (size_t stage = 0; stage < context.layouts.size(); ++stage) {
    if (!context.layouts[stage].takes_gradient) continue;
    travels[static_cast<size_t>(context.plan->stages[stage].last_layer) + 1] = true;
  }
  return travels;
}

/// What a slot brings up: of a streamed one what has not stayed since a slot before.
std::vector<int> uploaded_blocks(const PlanContext& context, int device, size_t index,
                                 const Slot& slot) {
  std::vector<int> blocks;
  if (!slot.uploads) return blocks;
  const StageLayout& layout = context.layouts[static_cast<size_t>(slot.stage)];
  const DeviceMemory& memory = context.memories[static_cast<size_t>(device)];
  for (size_t of = 0; of < layout.blocks.size(); ++of) {
    if (memory.copy(index, of).uploads) blocks.push_back(layout.blocks[of].block);
  }
  return blocks;
}

}  // namespace

/// A step under way.
struct StageExecutor::Step {
  int64_t number = 0;
  std::shared_ptr<BlockOptimizer> optimizer;
  std::vector<std::shared_ptr<Pass>> passes;
};

StageExecutor::StageExecutor(const StageExecutorSetup& setup)
    : setup_(setup),
      virtual_time_(setup.devices.empty() ? nullptr : setup.devices.front()->virtual_time()),
      pump_(std::make_unique<Pump>(executor_, setup.timeout_ns, virtual_time_)),
      consistency_(executor_, frozen_blocks(*setup.network), setup.update, setup.first_step),
      updates_({&executor_, pump_.get(), setup.host_worker, setup.update_queues, setup.host_state,
                &consistency_, setup.network}),
      background_(executor_),
      ended_(executor_),
      step_count_(setup.first_step),
      judged_count_(setup.first_step) {
  for (Ordering ordering : setup.left_out) consistency_.leave_out(ordering);
  consistency_.set_copier(
      [this](int block, int64_t version) { return copy_for_reader(block, version); });
  background_.set_on_failure([this](const Status& status) { fail(status); });
  if (virtual_time_ != nullptr) executor_.set_idle([this] { return advance_virtual_time(); });
}

bool StageExecutor::advance_virtual_time() {
  if (virtual_time_->advance()) {
    pump_->poll();
    return true;
  }
  if (is_deadlocked_) return false;
  is_deadlocked_ = true;
  fail(internal_error(
      fmt::format("deadlock at {:.6f} s of virtual time: nothing is left to happen, {}",
                  static_cast<double>(virtual_time_->now_ns()) * 1e-9,
                  pump_->has_waiters() ? "but results are awaited" : "but inputs are awaited")));
  return true;
}

StageExecutor::~StageExecutor() {
  // Coroutines under way hold references to what is destroyed here.
  if (!passes_.empty() || !steps_.empty() || is_reading()) {
    fail(Status(StatusCode::kCancelled, "the run has ended"));
  }
  Status ended = executor_.run(background_.join());
  static_cast<void>(ended);
  // The pump must not look at streams that are being destroyed.
  pump_->unwatch_all();
}

Result<std::unique_ptr<StageExecutor>> StageExecutor::create(const StageExecutorSetup& setup) {
  std::unique_ptr<StageExecutor> executor(new StageExecutor(setup));
  STAGECOACH_CHECK(setup.arena_bytes.size() == setup.devices.size());
  for (Stream* stream : setup.update_streams) executor->pump_->watch(stream);
  STAGECOACH_CHECK(setup.measured_bulk.empty() ||
                   setup.measured_bulk.size() == setup.devices.size());
  BulkSetup bulk{setup.bulk, 0, {}};
  const HostState& state = *setup.host_state;
  if (state.pinning().slow > 0 || state.bytes().mapped > 0) {
    bulk.ring_bytes = ring_bytes_of_a_lane(static_cast<int>(setup.devices.size()));
  }
  for (size_t index = 0; index < setup.devices.size(); ++index) {
    Device* device = setup.devices[index];
    if (!setup.measured_bulk.empty()) bulk.measured = setup.measured_bulk[index];
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<DeviceLane> lane,
                                DeviceLane::create(*device, setup.arena_bytes[index], bulk));
    for (Stream* stream : lane->streams()) executor->pump_->watch(stream);
    executor->lanes_.push_back(std::move(lane));
    executor->idle_since_ns_.push_back(0);
    if (device->virtual_time() != executor->virtual_time_) {
      return invalid_argument(
          fmt::format("device {} does not share the time of device {}; simulated and real devices "
                      "cannot be mixed, nor those of two simulated machines",
                      device->id(), setup.devices.front()->id()));
    }
    executor->submitters_.push_back(
        std::make_unique<Submitter>(executor->executor_, device->id(), executor->virtual_time_));
  }
  return executor;
}

ByteCount StageExecutor::ring_bytes() const {
  ByteCount bytes = 0;
  for (const auto& lane : lanes_) bytes += lane->ring_bytes();
  return bytes;
}

Result<std::shared_ptr<Pass>> StageExecutor::make_pass(const Plan& plan, const PassInput& input) {
  if (plan.device_count() != static_cast<int>(lanes_.size())) {
    return invalid_argument(
        fmt::format("plan is for {} devices; there are {}", plan.device_count(), lanes_.size()));
  }
  STAGECOACH_RETURN_IF_ERROR(check_executable(plan));
  auto pass = std::make_shared<Pass>(executor_, *setup_.network, plan, input);
  pass->number = pass_count_++;
  pass->step = step_count_;
  pass->version = input.inference ? step_count_ : consistency_.version_read_by(step_count_);
  PlanContext& context = pass->context;
  context.network = setup_.network;
  context.host_state = setup_.host_state;
  context.store = setup_.store;
  context.shape = setup_.shape;
  context.plan = &plan;
  context.input = &pass->input;
  context.trace_processes = setup_.trace_processes;
  context.version = pass->version;
  context.record = static_cast<int>(pass->number % 2);
  context.layouts = layout_stages(*setup_.network, plan, setup_.shape, setup_.recomputes);
  bool rounds_gradients = setup_.network->dtype != DType::kF32;
  for (int device = 0; device < plan.device_count(); ++device) {
    bool keeps = !setup_.resident_bytes.empty() && plan.residence == Residence::kStreamed;
    ResidencyLimits resident;
    if (keeps) resident.capacity = setup_.resident_bytes[static_cast<size_t>(device)];
    resident.next_begins_early = next_pass_begins_early(setup_.update);
    DeviceMemory memory =
        carve_device_memory(plan, context.layouts, device, rounds_gradients, resident);
    if (memory.need.total() > setup_.arena_bytes[static_cast<size_t>(device)]) {
      return internal_error(fmt::format("plan needs {} bytes of stage memory; the arena has {}",
                                        memory.need.total(),
                                        setup_.arena_bytes[static_cast<size_t>(device)]));
    }
    context.memories.push_back(std::move(memory));
  }
  pass->gradient_travels = gradient_boundaries(*setup_.network, context);
  return pass;
}

Status StageExecutor::run_on_controller(Task<Status> task) {
  Status status = executor_.run(std::move(task));
  // Who waits may be told of the end before the cause.
  return failure_.is_ok() ? status : failure_;
}

Status StageExecutor::start(const Plan& plan, const PassInput& input, Trace* trace) {
  if (!failure_.is_ok()) return failure_;
  STAGECOACH_RETURN_IF_ERROR(input.inference ? finish(0, 0)
                                             : finish(kPassesInFlight - 1, steps_.size()));
  STAGECOACH_ASSIGN_OR_RETURN(std::shared_ptr<Pass> pass, make_pass(plan, input));
  pass->trace = trace;
  if (!passes_.empty()) pass->previous = passes_.back();
  lease_blocks(*pass);
  int64_t hang_ns = std::max(kMinHangNs, kHangFactor * longest_operation_ns_);
  pump_->set_timeout_ns(std::min(setup_.timeout_ns, hang_ns));
  passes_.push_back(pass);
  if (!input.inference) passes_of_step_.push_back(pass);
  background_.spawn(run_pass(pass));
  return run_on_controller(await_outputs(pass));
}

Status StageExecutor::start_step(std::shared_ptr<BlockOptimizer> optimizer) {
  if (!failure_.is_ok()) return failure_;
  auto step = std::make_shared<Step>();
  step->number = step_count_++;
  step->optimizer = std::move(optimizer);
  step->passes = std::exchange(passes_of_step_, {});
  steps_.push_back(step);
  background_.spawn(run_step(step));
  return Status::ok();
}

Status StageExecutor::await_verdicts(int64_t steps) {
  return run_on_controller(await_judged(steps));
}

Task<Status> StageExecutor::await_judged(int64_t steps) {
  while (judged_count_ < steps) STAGECOACH_CO_RETURN_IF_ERROR(co_await ended_.wait());
  co_return Status::ok();
}

Status StageExecutor::finish(size_t passes, size_t steps) {
  return run_on_controller(await_few(passes, steps));
}

Task<Status> StageExecutor::await_few(size_t passes, size_t steps) {
  while (passes_.size() > passes || steps_.size() > steps) {
    STAGECOACH_CO_RETURN_IF_ERROR(co_await ended_.wait());
  }
  co_return Status::ok();
}

Status StageExecutor::start_reading(std::shared_ptr<BlockReader> reader) {
  if (!failure_.is_ok()) return failure_;
  STAGECOACH_CHECK(!is_reading());
  int blocks = setup_.host_state->block_count();
  reading_ = std::make_shared<Reading>();
  reading_->reader = std::move(reader);
  reading_->version = step_count_;
  reading_->next_block = blocks - 1;
  // All at once, so that no update of a later step comes before the reader has come to its block.
  for (int block = 0; block < blocks; ++block) consistency_.begin_reading(block, step_count_);
  background_.spawn(run_reading(reading_));
  return Status::ok();
}

/// The last blocks first: a backward pass needs their gradients' updates first.
Task<Status> StageExecutor::run_reading(std::shared_ptr<Reading> reading) {
  for (int& block = reading->next_block; block >= 0; --block) {
    STAGECOACH_CO_RETURN_IF_ERROR(co_await consistency_.reached(block, reading->version));
    STAGECOACH_CO_RETURN_IF_ERROR(co_await read_block(reading, block));
    if (!failure_.is_ok()) co_return failure_;
    auto copy = reading->copies.find(block);
    if (copy == reading->copies.end()) {
      consistency_.end_reading(block, reading->version);
      continue;
    }
    STAGECOACH_CO_RETURN_IF_ERROR(co_await pump_->reached(copy->second));
    reading->reader->release_copy(block);
  }
  STAGECOACH_CO_RETURN_IF_ERROR(submit_finish(*reading->reader));
  reading_.reset();
  ended_.notify();
  co_return Status::ok();
}

Task<Status> StageExecutor::read_block(std::shared_ptr<Reading> reading, int block) {
  int pieces = reading->reader->piece_count(block);
  for (int piece = 0; piece < pieces && failure_.is_ok(); ++piece) {
    Result<Timepoint> read = submit_piece(*reading, block, piece);
    if (!read.is_ok()) co_return read.status();
    reading->piece = *read;
    STAGECOACH_CO_RETURN_IF_ERROR(co_await pump_->reached(*read));
  }
  co_return Status::ok();
}

/// Of a block that is being read too: the rest of its pieces is read from the copy.
Task<Status> StageExecutor::copy_for_reader(int block, int64_t version) {
  std::shared_ptr<Reading> reading = reading_;
  bool is_wanted = reading && version == reading->version + 1 && block <= reading->next_block;
  if (!is_wanted || !reading->reader->reserve_copy(block)) co_return Status::ok();
  BlockReader& reader = *reading->reader;
  Result<Timepoint> copied =
      reader.copy_queue().submit("copy", {}, [&reader, block](TaskPool& pool) {
        reader.copy(block, pool);
        return Status::ok();
      });
  if (!copied.is_ok()) co_return copied.status();
  reading->copies.emplace(block, *copied);
  if (consistency_.holds(Ordering::kCopyBeforeOverwrite)) {
    STAGECOACH_CO_RETURN_IF_ERROR(co_await pump_->reached(*copied));
  }
  reading->copied.insert(block);
  if (block == reading->next_block && reading->piece) {
    STAGECOACH_CO_RETURN_IF_ERROR(co_await pump_->reached(*reading->piece));
  }
  consistency_.end_reading(block, reading->version);
  co_return Status::ok();
}

// Jobs hold no reader: its last owner must not be a thread of its own.
Result<Timepoint> StageExecutor::submit_piece(Reading& reading, int block, int piece) {
  BlockReader& reader = *reading.reader;
  bool from_copy = reading.copied.contains(block);
  return reader.queue().submit("read", {}, [&reader, block, piece, from_copy](TaskPool&) {
    reader.read(block, piece, from_copy);
    return Status::ok();
  });
}

Status StageExecutor::submit_finish(BlockReader& reader) {
  return reader.queue()
      .submit("finish", {},
              [&reader](TaskPool&) {
                reader.finish();
                return Status::ok();
              })
      .status();
}

Status StageExecutor::finish_reading() {
  Status status = run_on_controller(await_reading());
  return status.is_ok() || !is_reading() ? status : read_rest();
}

Task<Status> StageExecutor::await_reading() {
  while (is_reading()) STAGECOACH_CO_RETURN_IF_ERROR(co_await ended_.wait());
  co_return Status::ok();
}

/// What a failure kept from being read still is as it was, or has been copied: its next update
/// waited for the reader.
Status StageExecutor::read_rest() {
  std::shared_ptr<Reading> reading = std::exchange(reading_, nullptr);
  const HostState& state = *setup_.host_state;
  for (int block = reading->next_block; block >= 0; --block) {
    if (auto copy = reading->copies.find(block); copy != reading->copies.end()) {
      STAGECOACH_RETURN_IF_ERROR(wait_until_reached(copy->second));
      reading->copied.insert(block);
    } else if (!state.is_frozen(block) && state.version(block) != reading->version) {
      return failure_;
    }
  }
  for (int block = reading->next_block; block >= 0; --block) {
    for (int piece = 0; piece < reading->reader->piece_count(block); ++piece) {
      STAGECOACH_RETURN_IF_FAILED(submit_piece(*reading, block, piece));
    }
  }
  return submit_finish(*reading->reader);
}

Result<IterationReport> StageExecutor::run(const Plan& plan, const PassInput& input, Trace* trace) {
  STAGECOACH_RETURN_IF_ERROR(start(plan, input, trace));
  STAGECOACH_RETURN_IF_ERROR(finish(0, steps_.size()));
  IterationReport report = std::move(finished_passes_.back().report);
  finished_passes_.pop_back();
  return report;
}

void StageExecutor::fail(const Status& status) {
  if (!failure_.is_ok()) return;
  failure_ = status;
  // One failure ends the run for everyone: streams drop their work, awaiting coroutines wake.
  for (const auto& lane : lanes_) lane->abandon(status);
  for (Stream* stream : setup_.update_streams) stream->abandon(status);
  setup_.host_worker->abandon(status);
  for (HostQueue* queue : setup_.update_queues) queue->abandon(status);
  for (const std::shared_ptr<Pass>& pass : passes_) pass->cells.fail(status);
  consistency_.fail(status);
  updates_.fail(status);
  ended_.fail(status);
  pump_->fail_all(status);
}

void StageExecutor::lease_blocks(const Pass& pass) {
  for (int device = 0; device < static_cast<int>(lanes_.size()); ++device) {
    std::vector<Slot> slots = slots_of_device(*pass.plan, device, 0);
    for (size_t slot = 0; slot < slots.size(); ++slot) {
      for (int block : uploaded_blocks(pass.context, device, slot, slots[slot])) {
        consistency_.lease(block, pass.version);
      }
    }
  }
}

Task<Status> StageExecutor::end_leases(Pass& pass, std::vector<int> blocks, Timepoint landed) {
  STAGECOACH_CO_RETURN_IF_ERROR(co_await pump_->reached(landed));
  for (int block : blocks) consistency_.release(block, pass.version);
  co_return Status::ok();
}

Task<Status> StageExecutor::run_pass(std::shared_ptr<Pass> pass) {
  pass->group.set_on_failure([this](const Status& status) { fail(status); });
  for (size_t device = 0; device < lanes_.size(); ++device) {
    pass->group.spawn(run_device(pass, static_cast<int>(device)));
  }
  if (!pass->input.inference) {
    for (int block = 0; block < setup_.host_state->block_count(); ++block) {
      if (setup_.host_state->is_frozen(block)) continue;
      pass->group.spawn(collect_gradients(pass, block));
    }
  }
  STAGECOACH_CO_RETURN_IF_ERROR(co_await pass->group.join());
  pass->previous.reset();
  STAGECOACH_CO_RETURN_IF_ERROR(report(*pass));
  std::erase(passes_, pass);
  ended_.notify();
  co_return Status::ok();
}

Status StageExecutor::report(Pass& pass) {
  std::vector<DeviceLane*> lanes;
  for (const auto& lane : lanes_) lanes.push_back(lane.get());
  FinishedPass finished{pass.input.inference, pass.input.iteration, pass.step, pass.plan, {}};
  STAGECOACH_ASSIGN_OR_RETURN(finished.report, report_iteration(pass.context, lanes, pass.trace));
  longest_operation_ns_ = std::max(longest_operation_ns_, finished.report.longest_operation_ns);
  finished.report.update_wait_ns = update_wait_ns(pass, finished.report);
  finished_passes_.push_back(std::move(finished));
  return Status::ok();
}

/// In the mean of devices, how long they had nothing to do while a slot waited for updates.
double StageExecutor::update_wait_ns(const Pass& pass, const IterationReport& report) {
  int64_t total_ns = 0;
  for (size_t device = 0; device < pass.waits.size(); ++device) {
    if (device >= report.action_end_ns.size()) break;
    const std::vector<int64_t>& ends = report.action_end_ns[device];
    for (const VersionWait& wait : pass.waits[device]) {
      int64_t busy_until_ns = wait.first_action == 0
                                  ? idle_since_ns_[device]
                                  : ends[static_cast<size_t>(wait.first_action) - 1];
      total_ns += std::max<int64_t>(0, wait.end_ns - std::max(wait.start_ns, busy_until_ns));
    }
    if (!ends.empty()) idle_since_ns_[device] = ends.back();
  }
  return static_cast<double>(total_ns) / static_cast<double>(lanes_.size());
}

Task<Status> StageExecutor::run_step(std::shared_ptr<Step> step) {
  auto contributed = [step](int block) -> Task<Status> {
    for (const std::shared_ptr<Pass>& pass : step->passes) {
      STAGECOACH_CO_RETURN_IF_ERROR(co_await pass->cells.all_added_of(block).wait());
    }
    co_return Status::ok();
  };
  auto judged = [this] {
    ++judged_count_;
    ended_.notify();
  };
  Result<StepOutcome> outcome =
      co_await updates_.run(step->number, step->optimizer, contributed, judged,
                            [this](const Status& status) { fail(status); });
  if (!outcome.is_ok()) co_return outcome.status();
  finished_steps_.push_back(*outcome);
  std::erase(steps_, step);
  ended_.notify();
  co_return Status::ok();
}

Task<Status> StageExecutor::await_outputs(std::shared_ptr<Pass> pass) {
  for (int m = 0; m < pass->plan->micro_batches; ++m) {
    Cell& output = pass->cells.output(m);
    STAGECOACH_CO_RETURN_IF_ERROR(co_await output.submitted.wait());
    STAGECOACH_CO_RETURN_IF_ERROR(co_await pump_->reached(output.landing.timepoint));
  }
  co_return Status::ok();
}

Task<Status> StageExecutor::run_device(std::shared_ptr<Pass> pass, int device) {
  DeviceLane& lane = *lanes_[static_cast<size_t>(device)];
  if (pass->previous) {
    STAGECOACH_CO_RETURN_IF_ERROR(co_await pass->previous->cells.device_submitted(device).wait());
  }
  STAGECOACH_CO_RETURN_IF_ERROR(lane.begin_pass(pass->context, device));
  size_t slot_count = lane.slots().size();
  std::vector<Latch> uploaded(slot_count, Latch(executor_)), submitted = uploaded;
  TaskGroup group(executor_);
  group.set_on_failure([&](const Status& status) {
    for (std::vector<Latch>* latches : {&uploaded, &submitted}) {
      for (Latch& latch : *latches) latch.set(status);
    }
    fail(status);
  });
  group.spawn(upload_slots(*pass, device, uploaded, submitted));
  group.spawn(run_actions(*pass, device, uploaded, submitted));
  STAGECOACH_CO_RETURN_IF_ERROR(co_await group.join());
  std::vector<Timepoint> ends;
  SubmitWork end([&lane, &ends]() -> Status {
    STAGECOACH_ASSIGN_OR_RETURN(ends, lane.submit_end());
    return Status::ok();
  });
  STAGECOACH_CO_RETURN_IF_ERROR(co_await submitters_[static_cast<size_t>(device)]->run(end));
  pass->cells.device_submitted(device).set();
  for (Timepoint timepoint : ends) {
    STAGECOACH_CO_RETURN_IF_ERROR(co_await pump_->reached(timepoint));
  }
  co_return Status::ok();
}

Task<Status> StageExecutor::upload_slots(Pass& pass, int device, std::vector<Latch>& uploaded,
                                         std::vector<Latch>& submitted) {
  DeviceLane& lane = *lanes_[static_cast<size_t>(device)];
  Submitter& submitter = *submitters_[static_cast<size_t>(device)];
  bool bound = pass.plan->residence == Residence::kBound;
  for (size_t slot = 0; slot < lane.slots().size(); ++slot) {
    // A slot is uploaded into the buffer of the one before the last, while the last one runs.
    if (slot >= 2 && !bound) STAGECOACH_CO_RETURN_IF_ERROR(co_await submitted[slot - 2].wait());
    const Slot where = lane.slots()[slot];
    std::vector<int> blocks = uploaded_blocks(pass.context, device, slot, where);
    STAGECOACH_CO_RETURN_IF_ERROR(co_await await_version(pass, device, where, blocks));
    SubmitWork upload([&lane, slot] { return lane.submit_parameters(static_cast<int>(slot)); });
    STAGECOACH_CO_RETURN_IF_ERROR(co_await submitter.run(upload));
    uploaded[slot].set();
    if (blocks.empty()) continue;
    Timepoint landed = lane.parameters_landing(static_cast<int>(slot));
    pass.group.spawn(end_leases(pass, std::move(blocks), landed));
  }
  co_return Status::ok();
}

Task<Status> StageExecutor::await_version(Pass& pass, int device, const Slot& slot,
                                          const std::vector<int>& blocks) {
  if (!consistency_.holds(Ordering::kVersionBeforeRead)) co_return Status::ok();
  int64_t start_ns = RealClock::instance().now_ns();
  bool waited = false;
  for (int block : blocks) {
    if (consistency_.has_reached(block, pass.version)) continue;
    waited = true;
    STAGECOACH_CO_RETURN_IF_ERROR(co_await consistency_.reached(block, pass.version));
  }
  if (!waited) co_return Status::ok();
  int64_t end_ns = RealClock::instance().now_ns();
  pass.waits[static_cast<size_t>(device)].push_back({slot.first_action, start_ns, end_ns});
  co_return Status::ok();
}

Task<Status> StageExecutor::run_actions(Pass& pass, int device, std::vector<Latch>& uploaded,
                                        std::vector<Latch>& submitted) {
  DeviceLane& lane = *lanes_[static_cast<size_t>(device)];
  for (size_t slot = 0; slot < lane.slots().size(); ++slot) {
    STAGECOACH_CO_RETURN_IF_ERROR(co_await uploaded[slot].wait());
    const Slot where = lane.slots()[slot];
    for (int index = 0; index < where.action_count; ++index) {
      STAGECOACH_CO_RETURN_IF_ERROR(
          co_await run_action(pass, device, static_cast<int>(slot), where.first_action + index));
    }
    submitted[slot].set();
  }
  co_return Status::ok();
}

Task<Status> StageExecutor::await_cell(Cell& cell, Device& device) {
  STAGECOACH_CO_RETURN_IF_ERROR(co_await cell.submitted.wait());
  const Landing& landing = cell.landing;
  if (landing.device != nullptr && landing.device->info().backend != device.info().backend) {
    STAGECOACH_CO_RETURN_IF_ERROR(co_await pump_->reached(landing.timepoint));
  }
  co_return Status::ok();
}

Task<Status> StageExecutor::await_storage(Pass& pass, int round, const StageLayout& layout) {
  const HostState& state = *setup_.host_state;
  int kept_rounds = state.slots_per_site();
  for (const StageLayout::GradientPlace& place : layout.gradients) {
    int block = place.block;
    // P3: the slot's last gradient has been added.
    if (consistency_.holds(Ordering::kSlotBeforeLanding)) {
      if (round >= kept_rounds) {
        STAGECOACH_CO_RETURN_IF_ERROR(
            co_await pass.cells.added_of(block, round - kept_rounds).wait());
      } else if (pass.previous) {
        STAGECOACH_CO_RETURN_IF_ERROR(co_await pass.previous->cells.all_added_of(block).wait());
      }
    }
    // P5: where updates read slots, the last update has.
    if (state.accumulates() || !consistency_.holds(Ordering::kUpdateBeforeStorage)) continue;
    STAGECOACH_CO_RETURN_IF_ERROR(co_await consistency_.reached(block, pass.step));
  }
  co_return Status::ok();
}

Task<Status> StageExecutor::run_action(Pass& pass, int device, int slot, int action) {
  DeviceLane& lane = *lanes_[static_cast<size_t>(device)];
  int m = pass.plan->device_actions[static_cast<size_t>(device)][static_cast<size_t>(action)]
              .micro_batch;
  const Slot& where = lane.slots()[static_cast<size_t>(slot)];
  const Stage& stage = pass.plan->stages[static_cast<size_t>(where.stage)];
  const StageLayout& layout = pass.context.layouts[static_cast<size_t>(where.stage)];

  Landing input, output_grad;
  std::vector<Landing> freed;
  if (layout.takes_input) {
    Cell& cell = pass.cells.activation(stage.first_layer, m);
    STAGECOACH_CO_RETURN_IF_ERROR(co_await await_cell(cell, lane.device()));
    input = cell.landing;
  }
  if (layout.takes_gradient) {
    Cell& cell = pass.cells.gradient(stage.last_layer + 1, m);
    STAGECOACH_CO_RETURN_IF_ERROR(co_await await_cell(cell, lane.device()));
    output_grad = cell.landing;
  }
  if (pass.previous) {
    for (const StageLayout::Download& download : layout.downloads) {
      Cell& cell = pass.previous->cells.freed(download.boundary, m);
      STAGECOACH_CO_RETURN_IF_ERROR(co_await await_cell(cell, lane.device()));
      freed.push_back(cell.landing);
    }
  }
  if (lane.closes_gradients(action)) {
    STAGECOACH_CO_RETURN_IF_ERROR(co_await await_storage(pass, where.round, layout));
  }
  SubmitWork work([&lane, slot, action, &input, &output_grad, &freed] {
    return lane.submit_action(slot, action, input, output_grad, freed);
  });
  STAGECOACH_CO_RETURN_IF_ERROR(co_await submitters_[static_cast<size_t>(device)]->run(work));
  publish_results(pass, lane, slot, action);
  co_return Status::ok();
}

void StageExecutor::publish_results(Pass& pass, const DeviceLane& lane, int slot, int action) {
  const Slot& where = lane.slots()[static_cast<size_t>(slot)];
  const Stage& stage = pass.plan->stages[static_cast<size_t>(where.stage)];
  const StageLayout& layout = pass.context.layouts[static_cast<size_t>(where.stage)];
  int m = lane.micro_batch_of(action);
  PassCells& cells = pass.cells;
  for (const StageLayout::Download& download : layout.downloads) {
    cells.activation(download.boundary, m).publish(lane.outputs_landing());
  }
  if (layout.input_grad.region != Region::kNone) {
    cells.gradient(stage.first_layer, m).publish(lane.outputs_landing());
  }
  if (layout.loss.region != Region::kNone) cells.output(m).publish(lane.outputs_landing());
  // The gradient, where there is one, is the last thing that is read of a place in the store.
  if (layout.takes_gradient) {
    cells.freed(stage.last_layer + 1, m).publish(lane.inputs_landing());
  }
  if (layout.takes_input && !pass.gradient_travels[static_cast<size_t>(stage.first_layer)]) {
    cells.freed(stage.first_layer, m).publish(lane.inputs_landing());
  }
  if (!lane.closes_gradients(action)) return;
  for (size_t index = 0; index < layout.gradients.size(); ++index) {
    const StageLayout::GradientPlace& place = layout.gradients[index];
    cells.landing_of(place.block, place.site, where.round).publish(lane.gradient_landings()[index]);
  }
}

Task<Status> StageExecutor::collect_gradients(std::shared_ptr<Pass> pass, int block) {
  HostState* state = setup_.host_state;
  int sites = setup_.network->blocks[static_cast<size_t>(block)].site_count;
  for (int round = 0; round < pass->plan->rounds; ++round) {
    for (int site = 0; site < sites; ++site) {
      Cell& cell = pass->cells.landing_of(block, site, round);
      STAGECOACH_CO_RETURN_IF_ERROR(co_await cell.submitted.wait());
      STAGECOACH_CO_RETURN_IF_ERROR(co_await pump_->reached(cell.landing.timepoint));
    }
    if (!state->accumulates()) {
      pass->cells.added_of(block, round).set();
      continue;
    }
    // P5: the sum is free when the last update has read it.
    if (consistency_.holds(Ordering::kUpdateBeforeStorage)) {
      STAGECOACH_CO_RETURN_IF_ERROR(co_await consistency_.reached(block, pass->step));
    }
    HostWorkCost cost;
    // The sum is read and written, a slot is read.
    cost.bytes_touched =
        state->element_count(block) * sites * (8 + dtype_size_bytes(state->gradient_dtype()));
    Result<Timepoint> added =
        setup_.host_worker->submit("accumulate", cost, [state, block, round](TaskPool& pool) {
          state->accumulate_round(block, round, pool);
          return Status::ok();
        });
    if (!added.is_ok()) co_return added.status();
    STAGECOACH_CO_RETURN_IF_ERROR(co_await pump_->reached(*added));
    pass->cells.added_of(block, round).set();
  }
  co_return Status::ok();
}

}  // namespace stagecoach
