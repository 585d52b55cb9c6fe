#include "scheduler/slot_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace stagecoach {

ScheduleRun run_of_slots(std::string_view schedule, const StepSetup& setup, const SlotPlan& slots,
                         const std::vector<ComputedInterval>& timeline, int devices,
                         const std::vector<int>& places) {
  int iterations = timeline.back().iteration + 1;
  Plan plan;
  plan.schedule = schedule;
  plan.micro_batches = setup.micro_batches * iterations;
  plan.rounds = setup.rounds * iterations;
  plan.accumulation = setup.micro_batches;
  if (setup.update == UpdateMode::kAsync) plan.version_rule = VersionRule::kDelayed;
  if (setup.update == UpdateMode::kBarrier) plan.update_scope = UpdateScope::kModel;
  plan.stages = slots.stages;
  plan.device_actions.resize(devices);
  PlanTimeline times;
  times.actions.resize(devices);
  times.order.resize(devices);
  double start_ns = timeline.front().start_ns;
  for (const ComputedInterval& slot : timeline) start_ns = std::min(start_ns, slot.start_ns);
  for (const ComputedInterval& slot : timeline) {
    int device = places[slot.device];
    times.order[device].push_back(static_cast<int>(times.actions[device].size()));
    times.actions[device].push_back(
        {std::llround(slot.start_ns - start_ns), std::llround(slot.end_ns - start_ns)});
    int micro_batch = slot.iteration * setup.micro_batches + slot.micro_batch;
    plan.device_actions[device].push_back(Action{slot.stage, micro_batch});
  }
  return measure_run(std::move(plan), std::move(times), 0, OrderNotation::kSlots);
}

}  // namespace stagecoach
