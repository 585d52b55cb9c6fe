#include "tools/executed_step.h"

#include <fmt/format.h>
#include <memory>
#include <utility>

#include "backends/sim/sim_backend.h"
#include "scheduler/profiled_network.h"
#include "scheduler/schedules/roundpipe.h"
#include "scheduler/virtual_run.h"

namespace stagecoach {

namespace {

/// Per device of the plan: its number among those that run a slot; -1: none.
std::vector<int> numbers_of_used(const ModelPlan& plan) {
  std::vector<int> numbers(plan.plan.devices.size(), -1);
  for (int device : plan.plan.planned.prediction.devices) numbers[device] = 0;
  int next = 0;
  for (int& number : numbers) {
    if (number == 0) number = next++;
  }
  return numbers;
}

SimMachineProfile machine_for(const ModelPlan& plan, const RatedDevices& rated) {
  SimMachineProfile machine;
  for (int device : executed_devices(plan)) {
    machine.cards.push_back(rated.cards[static_cast<size_t>(device)]);
    machine.speeds.push_back(plan.setup.devices[static_cast<size_t>(device)].speed);
    machine.uplink_of_card.push_back(rated.devices[static_cast<size_t>(device)].uplink);
  }
  for (const SharedUplink& uplink : rated.uplinks) {
    machine.uplinks.push_back({1e9 * uplink.up_bytes_per_ns, 1e9 * uplink.down_bytes_per_ns});
  }
  machine.host_work_bytes_per_s = rated.host_bytes_per_s;
  machine.host_memory_bytes_per_s = rated.host_memory_bytes_per_s;
  return machine;
}

}  // namespace

std::vector<int> executed_devices(const ModelPlan& plan) {
  std::vector<int> numbers = numbers_of_used(plan), devices;
  for (size_t index = 0; index < numbers.size(); ++index) {
    if (numbers[index] >= 0) devices.push_back(plan.plan.devices[index]);
  }
  return devices;
}

Plan executable_plan(const ModelPlan& plan) {
  const PlannedStages& planned = plan.plan.planned;
  std::vector<int> numbers = numbers_of_used(plan), slots = planned.prediction.devices;
  for (int& device : slots) device = numbers[device];
  return make_placed_plan(planned.slots.stages, static_cast<int>(executed_devices(plan).size()),
                          plan.setup.micro_batches, plan.setup.rounds, slots);
}

int64_t executed_actions(const ModelPlan& plan) {
  return static_cast<int64_t>(plan.plan.planned.slots.stages.size()) * plan.setup.micro_batches;
}

Result<ExecutedStep> execute_step(const ModelPlan& plan, const std::string& name, DType dtype,
                                  const RatedDevices& rated, Trace* trace) {
  if (executed_actions(plan) > kMostExecutedActions) {
    return resource_exhausted(
        fmt::format("an iteration of {} actions is not run in virtual time, at most {} are; use "
                    "fewer micro-batches",
                    executed_actions(plan), kMostExecutedActions));
  }
  auto machine = std::make_shared<SimMachine>(machine_for(plan, rated));
  std::vector<std::unique_ptr<Device>> devices = open_sim_devices(machine);
  std::unique_ptr<HostQueue> host_work = make_sim_host_queue(*machine, "host");
  VirtualRun run;
  for (const auto& device : devices) run.devices.push_back(device.get());
  STAGECOACH_ASSIGN_OR_RETURN(Network network,
                              make_profiled_network(name, plan.setup.layers, dtype, run.devices));
  Plan actions = executable_plan(plan);
  run.network = &network;
  run.shape = kProfiledShape;
  run.plan = &actions;
  run.host_work = host_work.get();
  run.trace = trace;
  STAGECOACH_ASSIGN_OR_RETURN(std::vector<IterationReport> reports, run_virtually(run));
  ExecutedStep step;
  step.report = reports.front();
  step.total_ns = static_cast<double>(machine->time().now_ns());
  for (Device* device : run.devices) {
    STAGECOACH_ASSIGN_OR_RETURN(MemoryUsage usage, device->memory_usage());
    step.device_peak_bytes.push_back(usage.peak_bytes);
  }
  return step;
}

}  // namespace stagecoach
