#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "scheduler/plan_measures.h"
#include "scheduler/plan_simulation.h"
#include "scheduler/schedules/schedule.h"
#include "scheduler/weight_versions.h"

namespace stagecoach {

/// A schedule simulated with given stage times, and everything that follows from it.
struct ScheduleRun {
  Plan plan;
  PlanTimeline timeline;
  TimelineMeasures measures;
  std::vector<double> peak_activations;         ///< per device, in stage units
  WeightVersions versions;                      ///< per stage number
  Drift drift;                                  ///< per stage number
  std::vector<std::vector<std::string>> order;  ///< per device, in the schedule's notation
  std::optional<ClosedForm> closed_form;
};

/// Makes the plan of schedule `name` and simulates it with `parameters.times` (checked first).
/// `freed_at_input` is the share of activations freed at I (0 to 1). Pure.
Result<ScheduleRun> run_schedule(std::string_view name, const ScheduleParameters& parameters,
                                 double freed_at_input);

}  // namespace stagecoach
