#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/status.h"
#include "scheduler/plan.h"
#include "scheduler/plan_flow.h"

namespace stagecoach {

/// When each action of a plan runs. All times are virtual, in whole ns from the start.
struct PlanTimeline {
  struct Interval {
    int64_t start_ns = 0;
    int64_t end_ns = 0;
  };
  std::vector<std::vector<Interval>> actions;  ///< per device, parallel to Plan::device_actions
  /// Per device: indices into its list in the order they ran (the list's own unless a gate admits).
  std::vector<std::vector<int>> order;
};

/// Time of action `index` of `device` in ns, at least 0; with a gate at least 1. Two actions that
/// share a slot take the sum of their times together.
using ActionDuration = std::function<int64_t(int device, int index)>;

/// Event simulation of a valid plan (see validate_plan) of a network of `layer_count` layers: a
/// device runs one slot at a time, each as soon as the device is free and its inputs have arrived
/// (see PlanFlow). With Admission::kGate the order is found on the way, as PACI's runtime would
/// (arXiv 2606.07881): the oldest micro-batch's backward if its gradient has arrived, else the next
/// forward if it has arrived and the device's in-flight limit allows it. An empty `hop_time` makes
/// hand-overs free. Pure.
PlanTimeline simulate_plan(const Plan& plan, int layer_count, const ActionDuration& duration,
                           const HopTime& hop_time = {});

/// Times of one micro-batch on one stage, in ns.
struct StageTimes {
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;    ///< B, and FB of a streamed plan
  int64_t input_ns = 0;       ///< I
  int64_t weight_ns = 0;      ///< W
  int64_t overlapped_ns = 0;  ///< F and B in one slot; 0: the sum of both
  int64_t hop_ns = 0;         ///< one hand-over between devices
};

/// Refuses times that are not positive (the hop may be 0), naming the first.
Status check_stage_times(const StageTimes& times);

/// Every stage takes `times` / `chunks`, rounded down. `plan` must outlive the result.
ActionDuration uniform_durations(const Plan& plan, const StageTimes& times, int chunks);

/// Stage number s (see stage_numbers) takes `times[s]`, whole. `plan` must outlive the result and
/// have no more stage numbers than `times`.
ActionDuration stage_durations(const Plan& plan, const std::vector<StageTimes>& times);

/// `duration` on devices of these speeds, rounded, at least 1 ns unless it was 0.
ActionDuration at_speeds(ActionDuration duration, std::vector<double> speeds);

/// Every hand-over takes `hop_ns`.
HopTime uniform_hops(int64_t hop_ns);

}  // namespace stagecoach
