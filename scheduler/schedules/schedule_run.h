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

/// A plan simulated with given stage times, and everything that follows from it.
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

/// What a plan is simulated with.
struct RunConditions {
  StageTimes times;
  int chunks = 1;                       ///< a stage takes `times` / chunks
  std::vector<StageTimes> stage_times;  ///< per stage number instead; empty: `times`
  double freed_at_input = 0;            ///< share of activations freed at I, 0 to 1
  OrderNotation notation = OrderNotation::kChunks;
};

/// Simulates a valid plan. Times that are not positive, more or fewer of them than stages, and
/// times by stage where a layer is in two stage numbers (roundpipe's slots) are refused. Pure.
Result<ScheduleRun> run_plan(Plan plan, const RunConditions& conditions);

/// What follows from a plan and when its actions ran. Pure.
ScheduleRun describe_run(Plan plan, PlanTimeline timeline, double freed_at_input,
                         OrderNotation notation);

/// Makes the plan of schedule `name` and simulates it with `parameters.times`. Pure.
Result<ScheduleRun> run_schedule(std::string_view name, const ScheduleParameters& parameters,
                                 double freed_at_input);

}  // namespace stagecoach
