#include "scheduler/stage_executor.h"

#include <algorithm>
#include <fmt/format.h>

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

}  // namespace

/// Something a producer submits once and consumers wait for.
struct StageExecutor::Cell {
  explicit Cell(Executor& executor) : submitted(executor) {}
  Latch submitted;
  Landing landing;
};

/// What coroutines of one pass tell each other.
struct StageExecutor::Cells {
  Cells(Executor& executor, const Network& network, const Plan& plan)
      : micro_batches(plan.micro_batches), rounds(plan.rounds) {
    size_t boundaries = network.layers.size() + 1;
    for (size_t index = 0; index < boundaries * micro_batches; ++index) {
      activations.emplace_back(executor);
      gradients.emplace_back(executor);
    }
    for (int m = 0; m < micro_batches; ++m) activations[m].submitted.set();
    for (const ParameterBlock& block : network.blocks) {
      first_site.push_back(landed.size());
      for (int index = 0; index < block.site_count * rounds; ++index) landed.emplace_back(executor);
      first_round.push_back(added.size());
      for (int round = 0; round < rounds; ++round) added.emplace_back(executor);
    }
  }

  Cell& activation(int boundary, int m) { return activations[boundary * micro_batches + m]; }
  Cell& gradient(int boundary, int m) { return gradients[boundary * micro_batches + m]; }
  Cell& landing_of(int block, int site, int round) {
    return landed[first_site[block] + site * rounds + round];
  }
  /// Set when the gradients of (block, round) have been added, so their slots are free.
  Latch& added_of(int block, int round) { return added[first_round[block] + round]; }

  void fail(const Status& status) {
    for (Cell& cell : activations) cell.submitted.set(status);
    for (Cell& cell : gradients) cell.submitted.set(status);
    for (Cell& cell : landed) cell.submitted.set(status);
    for (Latch& latch : added) latch.set(status);
  }

  int micro_batches;
  int rounds;
  std::vector<Cell> activations, gradients, landed;
  std::vector<Latch> added;
  std::vector<size_t> first_site, first_round;
};

StageExecutor::StageExecutor(const StageExecutorSetup& setup) : setup_(setup) {
  if (!setup.devices.empty()) virtual_time_ = setup.devices.front()->virtual_time();
  pump_ = std::make_unique<Pump>(executor_, setup.timeout_ns, virtual_time_);
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
  // The pump must not look at streams that are being destroyed.
  pump_->unwatch_all();
}

Result<std::unique_ptr<StageExecutor>> StageExecutor::create(const StageExecutorSetup& setup) {
  std::unique_ptr<StageExecutor> executor(new StageExecutor(setup));
  STAGECOACH_CHECK(setup.arena_bytes.size() == setup.devices.size());
  for (size_t index = 0; index < setup.devices.size(); ++index) {
    Device* device = setup.devices[index];
    STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<DeviceLane> lane,
                                DeviceLane::create(*device, setup.arena_bytes[index], setup.bulk));
    for (Stream* stream : lane->streams()) executor->pump_->watch(stream);
    executor->lanes_.push_back(std::move(lane));
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

Status StageExecutor::begin_pass(const Plan& plan, const PassInput& input) {
  if (plan.device_count() != static_cast<int>(lanes_.size())) {
    return invalid_argument(
        fmt::format("plan is for {} devices; there are {}", plan.device_count(), lanes_.size()));
  }
  STAGECOACH_RETURN_IF_ERROR(check_executable(plan));
  context_ =
      PlanContext{setup_.network, setup_.host_state,     setup_.store, setup_.shape, &plan, {}, {},
                  &input,         setup_.trace_processes};
  context_.layouts = layout_stages(*setup_.network, plan, setup_.shape, setup_.recomputes);
  bool rounds_gradients = setup_.network->dtype != DType::kF32;
  for (int device = 0; device < plan.device_count(); ++device) {
    DeviceMemory memory = carve_device_memory(plan, context_.layouts, device, rounds_gradients);
    if (memory.need.total() > setup_.arena_bytes[device]) {
      return internal_error(fmt::format("plan needs {} bytes of stage memory; the arena has {}",
                                        memory.need.total(), setup_.arena_bytes[device]));
    }
    context_.memories.push_back(std::move(memory));
  }
  for (size_t device = 0; device < lanes_.size(); ++device) {
    STAGECOACH_RETURN_IF_ERROR(lanes_[device]->begin_pass(context_, static_cast<int>(device)));
  }
  return Status::ok();
}

Result<IterationReport> StageExecutor::run(const Plan& plan, const PassInput& input, Trace* trace) {
  STAGECOACH_RETURN_IF_ERROR(begin_pass(plan, input));
  int64_t hang_ns = std::max(kMinHangNs, kHangFactor * longest_operation_ns_);
  pump_->set_timeout_ns(std::min(setup_.timeout_ns, hang_ns));
  cells_ = std::make_unique<Cells>(executor_, *setup_.network, plan);
  Status status = executor_.run(run_pass());
  if (!status.is_ok()) return status;
  std::vector<DeviceLane*> lanes;
  for (const auto& lane : lanes_) lanes.push_back(lane.get());
  Result<IterationReport> report = report_iteration(context_, lanes, trace);
  if (report.is_ok()) {
    longest_operation_ns_ = std::max(longest_operation_ns_, report->longest_operation_ns);
  }
  return report;
}

void StageExecutor::fail(const Status& status) {
  // One failure ends the pass for everyone: streams drop their work, awaiting coroutines wake.
  for (const auto& lane : lanes_) lane->abandon(status);
  setup_.host_worker->abandon(status);
  cells_->fail(status);
  pump_->fail_all(status);
}

Task<Status> StageExecutor::run_pass() {
  TaskGroup group(executor_);
  group.set_on_failure([this](const Status& status) { fail(status); });
  for (size_t device = 0; device < lanes_.size(); ++device) {
    group.spawn(run_device(static_cast<int>(device)));
  }
  if (!context_.input->inference) {
    for (int block = 0; block < setup_.host_state->block_count(); ++block) {
      if (!setup_.network->blocks[block].is_frozen) group.spawn(collect_gradients(block));
    }
  }
  co_return co_await group.join();
}

Task<Status> StageExecutor::run_device(int device) {
  DeviceLane& lane = *lanes_[device];
  Submitter& submitter = *submitters_[device];
  int slot_count = static_cast<int>(lane.slots().size());
  for (int slot = 0; slot < slot_count; ++slot) {
    // The first slot loads itself; every slot then prefetches the next, whose buffer was last used
    // by the slot before this one.
    SubmitWork upload([&lane, slot, slot_count]() -> Status {
      if (slot == 0) STAGECOACH_RETURN_IF_ERROR(lane.submit_parameters(0));
      return slot + 1 < slot_count ? lane.submit_parameters(slot + 1) : Status::ok();
    });
    STAGECOACH_CO_RETURN_IF_ERROR(co_await submitter.run(upload));
    Slot where = lane.slots()[slot];
    for (int index = 0; index < where.action_count; ++index) {
      STAGECOACH_CO_RETURN_IF_ERROR(co_await run_action(device, slot, where.first_action + index));
    }
  }
  std::vector<Timepoint> ends;
  SubmitWork end([&lane, &ends]() -> Status {
    STAGECOACH_ASSIGN_OR_RETURN(ends, lane.submit_end());
    return Status::ok();
  });
  STAGECOACH_CO_RETURN_IF_ERROR(co_await submitter.run(end));
  for (Timepoint timepoint : ends) {
    STAGECOACH_CO_RETURN_IF_ERROR(co_await pump_->reached(timepoint));
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

Task<Status> StageExecutor::run_action(int device, int slot, int action) {
  DeviceLane& lane = *lanes_[device];
  int m = context_.plan->device_actions[device][action].micro_batch;
  const Slot& where = lane.slots()[slot];
  const Stage& stage = context_.plan->stages[where.stage];
  const StageLayout& layout = context_.layouts[where.stage];
  bool closes = lane.closes_gradients(action);

  Landing input, output_grad;
  if (layout.takes_input) {
    Cell& cell = cells_->activation(stage.first_layer, m);
    STAGECOACH_CO_RETURN_IF_ERROR(co_await await_cell(cell, lane.device()));
    input = cell.landing;
  }
  if (layout.takes_gradient) {
    Cell& cell = cells_->gradient(stage.last_layer + 1, m);
    STAGECOACH_CO_RETURN_IF_ERROR(co_await await_cell(cell, lane.device()));
    output_grad = cell.landing;
  }
  int kept_rounds = setup_.host_state->slots_per_site();
  if (closes && where.round >= kept_rounds) {
    // An earlier round's gradients lie in the slots this action will write (P5).
    for (const StageLayout::GradientPlace& place : layout.gradients) {
      STAGECOACH_CO_RETURN_IF_ERROR(
          co_await cells_->added_of(place.block, where.round - kept_rounds).wait());
    }
  }
  SubmitWork work([&lane, slot, action, &input, &output_grad] {
    return lane.submit_action(slot, action, input, output_grad);
  });
  STAGECOACH_CO_RETURN_IF_ERROR(co_await submitters_[device]->run(work));

  auto publish = [](Cell& cell, const Landing& landing) {
    cell.landing = landing;
    cell.submitted.set();
  };
  for (const StageLayout::Download& download : layout.downloads) {
    publish(cells_->activation(download.boundary, m), lane.outputs_landing());
  }
  if (layout.input_grad.region != Region::kNone) {
    publish(cells_->gradient(stage.first_layer, m), lane.outputs_landing());
  }
  if (closes) {
    for (size_t index = 0; index < layout.gradients.size(); ++index) {
      const StageLayout::GradientPlace& place = layout.gradients[index];
      publish(cells_->landing_of(place.block, place.site, where.round),
              lane.gradient_landings()[index]);
    }
  }
  co_return Status::ok();
}

Task<Status> StageExecutor::collect_gradients(int block) {
  int sites = setup_.network->blocks[block].site_count;
  for (int round = 0; round < context_.plan->rounds; ++round) {
    for (int site = 0; site < sites; ++site) {
      Cell& cell = cells_->landing_of(block, site, round);
      STAGECOACH_CO_RETURN_IF_ERROR(co_await cell.submitted.wait());
      STAGECOACH_CO_RETURN_IF_ERROR(co_await pump_->reached(cell.landing.timepoint));
    }
    HostState* state = setup_.host_state;
    if (!state->accumulates()) {
      cells_->added_of(block, round).set();
      continue;
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
    cells_->added_of(block, round).set();
  }
  co_return Status::ok();
}

}  // namespace stagecoach
