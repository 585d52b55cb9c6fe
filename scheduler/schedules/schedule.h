#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "scheduler/plan.h"
#include "scheduler/plan_builder.h"
#include "scheduler/plan_measures.h"
#include "scheduler/plan_simulation.h"
#include "scheduler/plan_text.h"

namespace stagecoach {

/// What a schedule is made from. An unset value takes the schedule's default; a value the schedule
/// does not have is refused. `parameter_names` lists them as users write them.
struct ScheduleParameters {
  int stages = 1;                      ///< N: devices
  int micro_batches = 1;               ///< M: of one iteration; of the whole run where asynchronous
  std::optional<int> chunks;           ///< V: model stages a device
  std::optional<int> group;            ///< G: micro-batches that pass through a chunk together
  std::optional<int> accumulation;     ///< a: micro-batches of one update
  std::optional<int> round;            ///< M_R: micro-batches of one round
  std::optional<int> forward_stages;   ///< Sf: forward slots
  std::optional<int> backward_stages;  ///< Sb: backward slots, the fused one included
  std::optional<int> slack;            ///< more forwards in flight, see warmup_forwards
  std::optional<int> gate;             ///< 1: admitted by a gate instead of a static order
  std::optional<int> iterations;       ///< K: updates in a row
  std::optional<int> barrier;       ///< 1: all updates between iterations, for all layers at once
  std::optional<int> asynchronous;  ///< 1: weights of the update before last
  std::optional<int> reverse_backward;  ///< 1: backward from the last micro-batch to the first
  std::optional<int> memory_limit;      ///< activations a device may hold, in stage units
  StageTimes times;                     ///< what searches plan with; zeros: F = I = W
  std::vector<StageTimes> stage_times;  ///< to simulate with: per stage number; empty: times / V
  std::vector<double> speeds;           ///< to simulate with: per device; empty: 1
  double freed_at_input = 0.5;          ///< share of activations a search frees at I
  StageLayers layers;                   ///< per model stage; empty: one layer each
};

/// A value of ScheduleParameters, its name on a command line and what it means, in one line.
struct ScheduleParameter {
  std::string_view name;
  std::optional<int> ScheduleParameters::*value;
  std::string_view meaning;
};

/// All optional parameters.
const std::vector<ScheduleParameter>& schedule_parameters();

/// An idle share known without simulating, and by which definition. Hand-overs cost nothing.
struct ClosedForm {
  BubbleDefinition definition = BubbleDefinition::kMakespan;
  double bubble = 0;
};

/// A way to make plans.
struct Schedule {
  std::string_view name;
  std::string_view summary;
  bool trains = false;  ///< else it is for simulation only
  OrderNotation notation = OrderNotation::kChunks;
  std::vector<std::string_view> parameters;  ///< beside stages and micro-batches
  /// Model stages a device holds, which a stage's time is divided by. Null: 1.
  int (*chunks)(const ScheduleParameters&) = nullptr;
  Result<Plan> (*make)(const ScheduleParameters&) = nullptr;
  /// Nothing where no formula holds for these parameters and times.
  std::optional<ClosedForm> (*closed_form)(const ScheduleParameters&, const StageTimes&) = nullptr;
};

/// Every schedule of the `stagecoach` command, in its order.
const std::vector<Schedule>& all_schedules();

/// The schedule called `name`; else not found, with the nearest name.
Result<const Schedule*> find_schedule(std::string_view name);

/// Refuses optional parameters that are given and that the schedule does not have.
Status check_parameters(const Schedule& schedule, const ScheduleParameters& parameters);

/// Makes and validates a plan. Parameters outside what the schedule allows are an invalid argument
/// that names schedule, parameter, value and what is allowed. Pure.
Result<Plan> make_plan(const Schedule& schedule, const ScheduleParameters& parameters);

/// Model stages a device of `schedule` holds.
int schedule_chunks(const Schedule& schedule, const ScheduleParameters& parameters);

}  // namespace stagecoach
