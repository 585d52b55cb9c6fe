#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "scheduler/plan.h"
#include "scheduler/plan_simulation.h"

namespace stagecoach {

/// The two definitions of idle share that are in use. They differ where devices start and end
/// staggered: a schedule that is free of idle time by span still has some by makespan.
enum class BubbleDefinition : uint8_t {
  kMakespan,  ///< 1 - work / (N * (last end of any device - first start of any device))
  kSpan       ///< 1 - (work / N) / (longest end - start of one device)
};

/// "makespan" or "span".
std::string_view bubble_definition_name(BubbleDefinition definition);

/// Idle time of all devices together, in ns: before a device's first action, between its actions,
/// after its last.
struct IdleTime {
  int64_t fill_ns = 0;
  int64_t steady_ns = 0;
  int64_t drain_ns = 0;
};

/// What a timeline amounts to.
struct TimelineMeasures {
  int64_t work_ns = 0;      ///< of all devices
  int64_t makespan_ns = 0;  ///< first start of any device to last end of any
  int64_t span_ns = 0;      ///< largest (last end - first start) of one device
  double bubble_makespan = 0;
  double bubble_span = 0;
  IdleTime idle;
  std::vector<int64_t> work_by_device_ns;
};

/// Measures a timeline of `plan`; devices without actions are idle throughout. Pure.
TimelineMeasures measure_timeline(const Plan& plan, const PlanTimeline& timeline);

/// Bytes in use on a device from `time_ns` on.
struct MemorySample {
  int64_t time_ns = 0;
  int64_t bytes = 0;
};

/// Activation memory of each device over time.
struct ActivationUse {
  std::vector<int64_t> peak_bytes;
  std::vector<std::vector<MemorySample>> samples;  ///< in time order
};

/// Activations of a plan as it ran. Bound: a forward takes its layers' bytes at its start; B or W
/// returns them at its end, I already returns `freed_at_input` (0 to 1) of them. Streamed:
/// boundaries wait on the host, so a device holds one stage's activations while B or FB runs.
/// `layer_bytes` is per layer and micro-batch. Pure.
ActivationUse activation_use(const Plan& plan, const PlanTimeline& timeline,
                             const std::vector<int64_t>& layer_bytes, double freed_at_input);

/// Peaks of activation_use with equal layers, in stage units: activations of one micro-batch on
/// 1/N of the model. Pure.
std::vector<double> peak_activations(const Plan& plan, const PlanTimeline& timeline,
                                     double freed_at_input);

}  // namespace stagecoach
