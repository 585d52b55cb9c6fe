#include "scheduler/schedules/schedule_run.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace stagecoach {

namespace {

Status check_conditions(const Plan& plan, const RunConditions& conditions) {
  // Written so that a value that is not a number is refused too.
  if (!(conditions.freed_at_input >= 0 && conditions.freed_at_input <= 1)) {
    return invalid_argument(
        fmt::format("share of activations freed at I is {}; it must be from 0 to 1",
                    conditions.freed_at_input));
  }
  STAGECOACH_RETURN_IF_ERROR(check_stage_times(conditions.times));
  if (conditions.stage_times.empty()) return Status::ok();
  if (plan.residence == Residence::kStreamed && plan.schedule != "mobius") {
    return invalid_argument(
        fmt::format("schedule {} has slots, not stages: give one time of a forward and one of a "
                    "backward slot",
                    plan.schedule));
  }
  std::vector<int> numbers = stage_numbers(plan);
  int stage_count = *std::max_element(numbers.begin(), numbers.end()) + 1;
  if (static_cast<int>(conditions.stage_times.size()) != stage_count) {
    return invalid_argument(fmt::format("times were given for {} stages; schedule {} has {}",
                                        conditions.stage_times.size(), plan.schedule, stage_count));
  }
  for (int stage = 0; stage < stage_count; ++stage) {
    Status status = check_stage_times(conditions.stage_times[stage]);
    if (!status.is_ok()) return status.with_context(fmt::format("stage {}", stage));
  }
  return Status::ok();
}

}  // namespace

ScheduleRun describe_run(Plan plan, PlanTimeline timeline, double freed_at_input,
                         OrderNotation notation) {
  ScheduleRun run;
  run.plan = std::move(plan);
  run.timeline = std::move(timeline);
  run.measures = measure_timeline(run.plan, run.timeline);
  run.peak_activations = peak_activations(run.plan, run.timeline, freed_at_input);
  run.versions = weight_versions(run.plan, run.timeline);
  run.drift = version_drift(run.versions);
  run.order = order_text(run.plan, run.timeline, notation);
  return run;
}

Result<ScheduleRun> run_plan(Plan plan, const RunConditions& conditions) {
  STAGECOACH_RETURN_IF_ERROR(check_conditions(plan, conditions));
  ActionDuration durations = conditions.stage_times.empty()
                                 ? uniform_durations(plan, conditions.times, conditions.chunks)
                                 : stage_durations(plan, conditions.stage_times);
  PlanTimeline timeline =
      simulate_plan(plan, plan.layer_count(), durations, uniform_hops(conditions.times.hop_ns));
  return describe_run(std::move(plan), std::move(timeline), conditions.freed_at_input,
                      conditions.notation);
}

Result<ScheduleRun> run_schedule(std::string_view name, const ScheduleParameters& parameters,
                                 double freed_at_input) {
  STAGECOACH_ASSIGN_OR_RETURN(const Schedule* schedule, find_schedule(name));
  // Before the plan is made: a search plans with these times.
  STAGECOACH_RETURN_IF_ERROR(check_stage_times(parameters.times));
  STAGECOACH_ASSIGN_OR_RETURN(Plan plan, make_plan(*schedule, parameters));
  RunConditions conditions{parameters.times, schedule_chunks(*schedule, parameters),
                           parameters.stage_times, freed_at_input, schedule->notation};
  STAGECOACH_ASSIGN_OR_RETURN(ScheduleRun run, run_plan(std::move(plan), conditions));
  bool plain = parameters.times.hop_ns == 0 && parameters.stage_times.empty();
  if (schedule->closed_form != nullptr && plain) {
    run.closed_form = schedule->closed_form(parameters, parameters.times);
  }
  return run;
}

}  // namespace stagecoach
