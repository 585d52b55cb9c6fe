#include "scheduler/schedules/breadth_first.h"
#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"

namespace stagecoach {

// GPipe (arXiv 1811.06965): all forwards, then all backwards. Backwards run from the first
// micro-batch on, so that accumulators close in the same order as everywhere else; the original's
// reverse order takes the same time.
Schedule gpipe_schedule() {
  Schedule schedule;
  schedule.name = "gpipe";
  schedule.summary = "all forwards, then all backwards";
  schedule.trains = true;
  schedule.parameters = {"iterations", "reverse-backward"};
  schedule.make = [](const ScheduleParameters& p) -> Result<Plan> {
    STAGECOACH_ASSIGN_OR_RETURN(StageLayers layers, stage_layers("gpipe", p, p.stages));
    return breadth_first_plan("gpipe", p.stages, p.micro_batches, layers,
                              p.reverse_backward.value_or(0) != 0);
  };
  schedule.closed_form = [](const ScheduleParameters& p, const StageTimes&) {
    return looped_bubble(p, 1);
  };
  return schedule;
}

}  // namespace stagecoach
