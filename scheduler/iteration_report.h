#pragma once

#include <cstdint>
#include <vector>

#include "core/status.h"
#include "core/trace.h"
#include "scheduler/device_lane.h"

namespace stagecoach {

/// What one pass over a batch took, from device-timed spans.
struct IterationReport {
  double bubble = 0;               ///< 1 - sum of compute busy / (N * (last end - first start))
  double bubble_simulated = 0;     ///< event simulation of the plan with the measured action times
  double controller_fraction = 0;  ///< compute idle while the next inputs were ready / iteration
  int64_t compute_busy_ns = 0;     ///< all devices
  int64_t start_ns = 0;            ///< of the first compute
  int64_t span_ns = 0;             ///< first compute start to last compute end
  int64_t longest_operation_ns = 0;
  ByteCount bytes_up = 0, bytes_down = 0;
  std::vector<int64_t> device_busy_ns;              ///< compute, per device
  std::vector<std::vector<int64_t>> action_ns;      ///< compute, per device and entry of its list
  std::vector<std::vector<int64_t>> action_end_ns;  ///< likewise, when
  /// In the mean of devices: without work because a slot's parameters waited for their updates.
  double update_wait_ns = 0;
  std::vector<LinkSample> up, down;        ///< per device, where the pass times layers
  std::vector<LayerSample> layer_samples;  ///< where the pass times layers
};

/// Evaluates a finished pass and adds its slices to `trace` when that is not null. Device d is
/// process d of the trace, lanes are its tracks. Errors: what a device answers about its events.
Result<IterationReport> report_iteration(const PlanContext& context,
                                         const std::vector<DeviceLane*>& lanes, Trace* trace);

}  // namespace stagecoach
