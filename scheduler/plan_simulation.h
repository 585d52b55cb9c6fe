#pragma once

#include <functional>
#include <vector>

#include "core/status.h"
#include "scheduler/plan.h"

namespace stagecoach {

/// When each action of a plan runs, by an event simulation: actions of a device run in order, each
/// as soon as its inputs exist; transfers cost nothing.
struct PlanTimeline {
  struct Interval {
    double start = 0;
    double end = 0;
  };
  std::vector<std::vector<Interval>> actions;  ///< per device, parallel to Plan::device_actions
  double makespan = 0;                         ///< first start to last end
  double bubble = 0;                           ///< 1 - work / (N * makespan)
};

/// Duration of action `index` of `device`, any unit.
using ActionDuration = std::function<double(int device, int index)>;

/// Simulates a valid plan (see validate_plan); `layer_count` is that of its network. Pure.
PlanTimeline simulate_plan(const Plan& plan, int layer_count, const ActionDuration& duration);

}  // namespace stagecoach
