#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"
#include "scheduler/schedules/warmup_order.h"

namespace stagecoach {

// PipeDream (arXiv 1806.03377): 1F1B without a flush, an update after every backward; a stage keeps
// the weights of each micro-batch in flight and runs its backward with them.
Schedule pipedream_schedule() {
  Schedule schedule;
  schedule.name = "pipedream";
  schedule.summary = "1F1B without a flush, weights stashed for each micro-batch in flight";
  schedule.trains = true;
  schedule.notation = OrderNotation::kVersions;
  schedule.parameters = {"gate-slack"};
  schedule.make = [](const ScheduleParameters& p) -> Result<Plan> {
    STAGECOACH_ASSIGN_OR_RETURN(StageLayers layers, stage_layers("pipedream", p, p.stages));
    Plan plan = warmup_plan("pipedream", p.micro_batches, layers, p.slack.value_or(0));
    plan.accumulation = 1;
    plan.version_rule = VersionRule::kStash;
    return plan;
  };
  schedule.closed_form = [](const ScheduleParameters& p, const StageTimes&) {
    return looped_bubble(p, 1);
  };
  return schedule;
}

}  // namespace stagecoach
