#include <algorithm>

#include "scheduler/schedules/roundpipe.h"
#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"

namespace stagecoach {

namespace {

Result<Plan> make_slidedp(const ScheduleParameters& p) {
  int forward_stages = p.forward_stages.value_or(3);
  STAGECOACH_RETURN_IF_ERROR(
      check_range("slidedp", "forward-stages", forward_stages, 0, kNoMaximum));
  std::vector<Stage> stages = equal_slots(forward_stages, forward_stages + 1);
  Plan plan;
  plan.schedule = "slidedp";
  plan.micro_batches = p.micro_batches;
  plan.stages = stages;
  for (int device = 0; device < p.stages; ++device) {
    // 64 bits: M * N may be large.
    int first = static_cast<int>(static_cast<int64_t>(p.micro_batches) * device / p.stages);
    int end = static_cast<int>(static_cast<int64_t>(p.micro_batches) * (device + 1) / p.stages);
    std::vector<Action>& actions = plan.device_actions.emplace_back();
    for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage) {
      for (int m = first; m < end; ++m) actions.push_back({stage, m});
    }
  }
  return plan;
}

}  // namespace

// Layer-wise data parallel: every device runs every layer, streamed from one host state, on its
// share of the batch. Shares differ by at most one micro-batch.
Schedule slidedp_schedule() {
  Schedule schedule;
  schedule.name = "slidedp";
  schedule.summary = "every device runs each streamed layer on its share of the batch";
  schedule.trains = true;
  schedule.notation = OrderNotation::kSlots;
  schedule.parameters = {"forward-stages", "iterations"};
  schedule.make = make_slidedp;
  schedule.closed_form = [](const ScheduleParameters& p,
                            const StageTimes&) -> std::optional<ClosedForm> {
    if (p.iterations.value_or(1) != 1) return std::nullopt;
    int largest = (p.micro_batches + p.stages - 1) / p.stages;
    return ClosedForm{
        BubbleDefinition::kMakespan,
        1 - static_cast<double>(p.micro_batches) / (static_cast<double>(p.stages) * largest)};
  };
  return schedule;
}

}  // namespace stagecoach
