#pragma once

#include <vector>

#include "core/status.h"
#include "hal/device_info.h"
#include "scheduler/network.h"
#include "scheduler/partition.h"
#include "scheduler/plan.h"
#include "scheduler/stage_memory.h"

namespace stagecoach {

/// What a plan is made for.
struct PlanRequest {
  std::vector<DeviceInfo> devices;
  std::vector<ByteCount> free_bytes;  ///< per device: what stage memory may take
  MicroBatchShape shape;
  int micro_batches = 1;
  int max_stage_layers = 0;
};

/// Plans of a training run and the stage memory they need on each device.
struct PlannedRun {
  std::vector<Stage> training_stages;
  std::vector<Stage> inference_stages;
  ByteCount arena_bytes = 0;
};

/// Cuts `network` into stages that fit the smallest device, by FLOP as layer times. When the
/// largest layer does not fit, resource exhausted: names the layer, device, bytes needed and free,
/// and what to set. Pure.
Result<PlannedRun> plan_run(const Network& network, const PlanRequest& request);

}  // namespace stagecoach
