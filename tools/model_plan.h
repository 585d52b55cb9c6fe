#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memory/budget.h"
#include "memory/host_limits.h"
#include "scheduler/device_planner.h"
#include "scheduler/network.h"
#include "tools/rated_devices.h"

namespace stagecoach {

/// What a step is planned for.
struct ModelPlanRequest {
  MicroBatchShape shape;
  int micro_batches = 4;
  int rounds = 1;
  UpdateMode update = UpdateMode::kOverlap;
  bool gated = false;          ///< whether updates wait for the norm of all gradients
  MomentOptions moments = {};  ///< of the optimizer
  HostLimits host;             ///< of longest_sequences, and of plans where that is asked for
  bool checks_host = false;    ///< whether plans must fit into it
};

/// A model's plan with everything that `stagecoach plan` says of it.
struct ModelPlan {
  StepSetup setup;
  DevicePlan plan;
  double plan_ms = 0;
  StageBytes device_bytes;  ///< regions of a device that runs all stages
  HostNeed host;            ///< of a training step; evaluation may bring more boundaries home
  std::string layer_times;  ///< where they come from, for people
};

/// Plans `network` on `rated` devices, from the times of operations where they are known of every
/// device and `network` computes, else from FLOP and bytes. Resource exhausted when it does not fit
/// devices or host.
Result<ModelPlan> plan_model(const Network& network, const ModelPlanRequest& request,
                             const RatedDevices& rated);

/// What a step takes for its updates.
struct UpdateTimes {
  double update_ns = 0;  ///< all updates one after the other
  /// What devices compute meanwhile, about: with `overlap` the next forward up to the last layer
  /// that waits, and unless updates wait for the norm the backward of the last round before it;
  /// with `async` a whole step; with `barrier` nothing.
  double window_ns = 0;
  double exposed_ns = 0;  ///< how much longer a step is than with updates that take no time
};
UpdateTimes update_times(const ModelPlan& plan);

/// Why a step takes what it takes.
struct PlanExplanation {
  /// Micro-batches of a round from which the parameters of the next stage arrive in time; nothing
  /// when activations alone fill a link.
  std::optional<int> hidden_from_round;
  std::optional<PlannedStages> rule;  ///< RoundPipe's own, where it fits
};
PlanExplanation explain_plan(const ModelPlan& plan);

/// Longest sequences of the model, by what limits them.
struct LongestSequences {
  int64_t device = 0;          ///< single layers as stages, in the largest device's memory
  int64_t tokens_of_host = 0;  ///< state, batch and boundaries between single layers in `host`
  int64_t positions = 0;       ///< of the model
  HostLimits host;
};
LongestSequences longest_sequences(const Network& network, const ModelPlanRequest& request,
                                   const RatedDevices& rated, int64_t positions);

}  // namespace stagecoach
