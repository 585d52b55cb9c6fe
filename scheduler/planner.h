#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "hal/device_info.h"
#include "memory/moments.h"
#include "scheduler/device_planner.h"
#include "scheduler/layer_timing.h"
#include "scheduler/network.h"
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
  UpdateMode update = UpdateMode::kBarrier;
  bool gated = false;      ///< whether updates wait for the norm of all gradients
  bool is_static = false;  ///< streamed stages stay on their device: the baseline
  ActivationPolicy activations = ActivationPolicy::kAuto;  ///< streamed stages recompute
  bool residency = true;       ///< whether parameters of streamed stages stay where memory is spare
  MomentOptions moments = {};  ///< of the optimizer
  ByteCount device_update_bytes = 0;  ///< on each device, for updates there; not in free_bytes
  ByteCount save_copy_bytes = 0;      ///< on the host, for copies while a save goes on
  /// Layer times, device speeds and links as measured; nothing: by FLOP and DeviceInfo::speed, with
  /// links that take no time.
  std::optional<MeasuredRun> measured;
};

/// Plans of a training run and the stage memory they need on each device. Plans name the devices of
/// `devices`, in that order.
struct PlannedRun {
  std::vector<int> devices;                 ///< those that take part, as indices of the request
  std::vector<DeviceShare> shares;          ///< per device of the request
  std::vector<Plan> training_plans;         ///< of passes, in turn: the rotation goes on
  Plan inference_plan;                      ///< streams its stages
  std::vector<ByteCount> arena_bytes;       ///< per device that takes part
  std::vector<ByteCount> resident_bytes;    ///< of that, for parameters that stay; empty: none
  bool recomputes = true;                   ///< whether backwards run their forward once more
  std::optional<StepPrediction> predicted;  ///< of streamed stages, once layers were measured
  SlotPlan slots;                           ///< of streamed stages
  std::vector<int> slot_devices;            ///< where the first pass runs them

  const Plan& plan_of_pass(int64_t pass) const {
    return training_plans[static_cast<size_t>(pass) % training_plans.size()];
  }
};

/// What planning is told of the request's devices and layers.
StepSetup step_setup(const Network& network, const PlanRequest& request);

/// Plans a run of streamed stages: plan_for_devices cuts them and chooses devices. When no device
/// holds the largest layer, resource exhausted: names layer, device, bytes needed and free, and
/// what to set. Pure.
Result<PlannedRun> plan_run(const Network& network, const PlanRequest& request);

/// Plans a run of a schedule that binds stages to devices: as many stages as it asks for, balanced
/// by time; evaluation streams its stages. Sizes outside the schedule and more stages than layers
/// are an invalid argument that names the schedule; a device whose stages and micro-batches in
/// flight do not fit is resource exhausted, as above. Pure.
Result<PlannedRun> plan_bound_run(const Network& network, const PlanRequest& request,
                                  const Schedule& schedule);

}  // namespace stagecoach
