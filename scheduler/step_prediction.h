#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace stagecoach {

/// What keeps a device, a link or the host busy.
enum class StepLane : uint8_t {
  kCompute,
  kParametersUp,
  kActivationsUp,
  kActivationsDown,
  kGradientsDown,
  kHostUpdate,
  kUplinksUp,
  kUplinksDown,
  kHostMemory
};
inline constexpr int kStepLanes = 9;

/// "compute", "parameters_up", … "host_memory".
std::string_view step_lane_name(StepLane lane);

/// A predicted step of streamed stages.
struct StepPrediction {
  double step_ns = 0;      ///< an iteration, updates included; in steady state unless kBarrier
  double makespan_ns = 0;  ///< of the first iteration: first to last computing of any device
  double bubble = 0;  ///< idle share of compute: of the makespan with kBarrier, else of the step
  double update_exposed_ns = 0;  ///< kBarrier: from the end of compute to the last update
  double busy_fraction[kStepLanes] =
      {};                          ///< of a step; of the mean device or uplink, or of the host
  std::vector<double> compute_ns;  ///< per device and iteration
  std::vector<int> devices;        ///< per slot of the first iteration

  double lane(StepLane lane) const { return busy_fraction[static_cast<int>(lane)]; }
  /// "compute", "link up", "link down", "host update", "uplinks up", "uplinks down" or "host
  /// memory": which is busiest.
  std::string_view bottleneck() const;
};

/// A micro-batch of a slot on its device, of any iteration that a prediction simulates.
struct ComputedInterval {
  int iteration = 0;
  int device = 0;
  int stage = 0;        ///< index into SlotPlan::stages
  int micro_batch = 0;  ///< of the iteration
  double start_ns = 0, end_ns = 0;
};

}  // namespace stagecoach
