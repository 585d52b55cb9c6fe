#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"
#include "scheduler/schedules/warmup_order.h"

namespace stagecoach {

// 1F1B with a flush (PipeDream-Flush, arXiv 2006.09503; DAPPLE, arXiv 2007.01045): as fast as GPipe
// with the activations of N - r micro-batches instead of M. Slack starts more forwards early.
Schedule one_f_one_b_schedule() {
  Schedule schedule;
  schedule.name = "1f1b";
  schedule.summary = "one forward, one backward in turn, then a flush";
  schedule.trains = true;
  schedule.parameters = {"gate-slack", "iterations"};
  schedule.make = [](const ScheduleParameters& p) -> Result<Plan> {
    STAGECOACH_ASSIGN_OR_RETURN(StageLayers layers, stage_layers("1f1b", p, p.stages));
    return warmup_plan("1f1b", p.micro_batches, layers, p.slack.value_or(0));
  };
  schedule.closed_form = [](const ScheduleParameters& p, const StageTimes&) {
    return looped_bubble(p, 1);
  };
  return schedule;
}

}  // namespace stagecoach
