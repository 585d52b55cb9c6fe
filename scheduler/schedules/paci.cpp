#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"
#include "scheduler/schedules/warmup_order.h"

namespace stagecoach {

namespace {

Result<Plan> make_paci(const ScheduleParameters& p) {
  int accumulation = p.accumulation.value_or(p.stages);
  STAGECOACH_RETURN_IF_ERROR(check_range("paci", "accumulation", accumulation, 1, kNoMaximum));
  int gate = p.gate.value_or(0);
  STAGECOACH_RETURN_IF_ERROR(check_range("paci", "gate", gate, 0, 1));
  STAGECOACH_ASSIGN_OR_RETURN(StageLayers layers, stage_layers("paci", p, p.stages));
  Plan plan = warmup_plan("paci", p.micro_batches, layers, p.slack.value_or(0));
  plan.accumulation = accumulation;
  plan.version_rule = VersionRule::kCurrent;
  // The limits are the gate: with equal times it admits in exactly the static order.
  plan.admission = gate != 0 ? Admission::kGate : Admission::kStatic;
  return plan;
}

}  // namespace

// PACI (arXiv 2606.07881): 1F1B without a flush on one copy of the weights; each stage updates
// after a backwards, and a limit of N + 1 - i (stage i from 1) forwards in flight bounds the drift
// by ceil((N - i) / a). Latency needs slack: limits up to 2 (N - i) + 1.
Schedule paci_schedule() {
  Schedule schedule;
  schedule.name = "paci";
  schedule.summary = "1F1B without a flush on one weight copy, bounded drift";
  schedule.trains = true;
  schedule.notation = OrderNotation::kVersions;
  schedule.parameters = {"accumulation", "gate-slack", "gate"};
  schedule.make = make_paci;
  // One fill and one drain over the whole run.
  schedule.closed_form = [](const ScheduleParameters& p, const StageTimes&) {
    return looped_bubble(p, 1);
  };
  return schedule;
}

}  // namespace stagecoach
