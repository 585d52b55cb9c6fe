#pragma once

#include <optional>
#include <vector>

#include "core/status.h"
#include "hal/device_info.h"
#include "scheduler/network.h"
#include "scheduler/partition.h"
#include "scheduler/plan.h"
#include "scheduler/schedules/schedule.h"
#include "scheduler/stage_memory.h"

namespace stagecoach {

/// What a bound stage keeps of a micro-batch from its forward to its backward.
enum class ActivationPolicy : uint8_t {
  kAuto,      ///< all that backward reads where that fits, else as kRecompute
  kKeep,      ///< all that backward reads
  kRecompute  ///< its input
};

/// What a plan is made for.
struct PlanRequest {
  std::vector<DeviceInfo> devices;
  std::vector<ByteCount> free_bytes;  ///< per device: what stage memory may take
  MicroBatchShape shape;
  int micro_batches = 1;
  int rounds = 1;
  int max_stage_layers = 0;
  ActivationPolicy activations = ActivationPolicy::kAuto;  ///< streamed stages recompute
};

/// Plans of a training run and the stage memory they need on each device.
struct PlannedRun {
  std::vector<Stage> training_stages;
  std::vector<Stage> inference_stages;
  std::vector<ByteCount> arena_bytes;  ///< per device
  std::optional<Plan> bound_plan;      ///< of a schedule that binds stages to devices
  bool recomputes = true;              ///< whether backwards run their forward once more
};

/// Cuts `network` into stages that fit the smallest device, by FLOP as layer times. When the
/// largest layer does not fit, resource exhausted: names the layer, device, bytes needed and free,
/// and what to set. Pure.
Result<PlannedRun> plan_run(const Network& network, const PlanRequest& request);

/// Plans a run of a schedule that binds stages to devices: as many stages as it asks for, balanced
/// by FLOP; evaluation streams its stages. Sizes outside the schedule and more stages than layers
/// are an invalid argument that names the schedule; a device whose stages and micro-batches in
/// flight do not fit is resource exhausted, as above. Pure.
Result<PlannedRun> plan_bound_run(const Network& network, const PlanRequest& request,
                                  const Schedule& schedule);

}  // namespace stagecoach
