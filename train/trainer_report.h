#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "memory/arena.h"
#include "scheduler/device_planner.h"

namespace stagecoach {

/// Totals since creation, for summaries.
struct TrainerReport {
  std::string schedule, update;
  std::string activations;  ///< "recompute" or "keep": what backward does
  std::vector<std::string> devices;
  double controller_fraction = 0;  ///< median over iterations
  double overrun = 0;              ///< overrun time / compute time
  double update_exposed_fraction =
      0;                        ///< share of the iteration in which devices waited for updates
  double bubble_simulated = 0;  ///< event simulation of the plan with the measured slot times
  std::vector<ByteCount> device_peak_bytes;
  ByteCount state_bytes = 0;    ///< parameters, one gradient and moments, on the host
  ByteCount mapped_bytes = 0;   ///< of a frozen base that stays in its files
  ByteCount landing_bytes = 0;  ///< where more gradients land, of further sites and of rounds
  double host_state_bytes_per_parameter = 0;  ///< of state_bytes
  ByteCount host_planned_bytes = 0;  ///< the most with any plan so far: state, batches, boundaries
                                     ///< and memory of mock devices
  Pinning pinning;                   ///< of all of it but mocks
  int64_t bytes_up = 0, bytes_down = 0;         ///< of passes
  double device_share = 0;                      ///< of trained elements: updated on devices
  std::vector<DeviceShare> shares;              ///< per device, of the streamed plan in use
  std::vector<ByteCount> device_planned_bytes;  ///< per device: the most with any plan so far
  /// A step as planned from measured times and as it was, in the median since that plan; 0 while
  /// nothing was measured or where stages are bound.
  double step_predicted_ns = 0, step_ns = 0;
};

}  // namespace stagecoach
