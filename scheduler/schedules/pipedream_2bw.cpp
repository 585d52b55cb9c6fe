#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"
#include "scheduler/schedules/warmup_order.h"

namespace stagecoach {

// PipeDream-2BW (arXiv 2006.09503): 1F1B without a flush, an update every a >= N micro-batches; two
// versions of the weights, every gradient one update late, forward and backward of a micro-batch on
// the same version.
Schedule pipedream_2bw_schedule() {
  Schedule schedule;
  schedule.name = "pipedream-2bw";
  schedule.summary = "1F1B without a flush, two weight versions, gradients one update late";
  schedule.trains = true;
  schedule.notation = OrderNotation::kVersions;
  schedule.parameters = {"accumulation"};
  schedule.make = [](const ScheduleParameters& p) -> Result<Plan> {
    int accumulation = p.accumulation.value_or(p.stages);
    STAGECOACH_RETURN_IF_ERROR(
        check_range("pipedream-2bw", "accumulation", accumulation, p.stages, kNoMaximum));
    STAGECOACH_ASSIGN_OR_RETURN(StageLayers layers, stage_layers("pipedream-2bw", p, p.stages));
    Plan plan = warmup_plan("pipedream-2bw", p.micro_batches, layers, 0);
    plan.accumulation = accumulation;
    plan.version_rule = VersionRule::kDelayed;
    return plan;
  };
  schedule.closed_form = [](const ScheduleParameters& p, const StageTimes&) {
    return looped_bubble(p, 1);
  };
  return schedule;
}

}  // namespace stagecoach
