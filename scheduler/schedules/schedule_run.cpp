#include "scheduler/schedules/schedule_run.h"

#include <fmt/format.h>
#include <utility>

namespace stagecoach {

Result<ScheduleRun> run_schedule(std::string_view name, const ScheduleParameters& parameters,
                                 double freed_at_input) {
  STAGECOACH_ASSIGN_OR_RETURN(const Schedule* schedule, find_schedule(name));
  STAGECOACH_RETURN_IF_ERROR(check_stage_times(parameters.times));
  // Written so that a value that is not a number is refused too.
  if (!(freed_at_input >= 0 && freed_at_input <= 1)) {
    return invalid_argument(fmt::format(
        "share of activations freed at I is {}; it must be from 0 to 1", freed_at_input));
  }
  ScheduleRun run;
  STAGECOACH_ASSIGN_OR_RETURN(run.plan, make_plan(*schedule, parameters));
  int chunks = schedule_chunks(*schedule, parameters);
  run.timeline = simulate_plan(run.plan, run.plan.layer_count(),
                               uniform_durations(run.plan, parameters.times, chunks),
                               uniform_hops(parameters.times.hop_ns));
  run.measures = measure_timeline(run.plan, run.timeline);
  run.peak_activations = peak_activations(run.plan, run.timeline, freed_at_input);
  run.versions = weight_versions(run.plan, run.timeline.order);
  run.drift = version_drift(run.versions);
  run.order = order_text(run.plan, run.timeline.order, schedule->notation);
  if (schedule->closed_form != nullptr && parameters.times.hop_ns == 0) {
    run.closed_form = schedule->closed_form(parameters, parameters.times);
  }
  return run;
}

}  // namespace stagecoach
