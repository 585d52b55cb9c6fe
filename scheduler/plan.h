#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace stagecoach {

/// What an action does with one micro-batch on one stage.
enum class ActionKind : uint8_t {
  kForward,         ///< F: forward, keeping nothing but what later stages start from
  kBackward,        ///< B: recompute and full backward
  kForwardBackward  ///< FB: the fused stage: forward, loss and backward without recompute
};

/// "F", "B" or "FB".
std::string_view action_kind_name(ActionKind kind);

/// Consecutive layers that are moved and run together. Forward and backward stages are cut
/// separately, so a layer is in one F or FB stage and in one B or FB stage.
struct Stage {
  ActionKind kind = ActionKind::kForward;
  int first_layer = 0;
  int last_layer = 0;  ///< inclusive
};

/// One entry of a device's list.
struct Action {
  int stage = 0;        ///< index into Plan::stages
  int micro_batch = 0;  ///< of the whole iteration
};

/// What runs where in which order for one iteration, made by a pure function before anything runs.
/// Stages are in data-flow order: forward stages, the fused one, backward stages from last to
/// first. Plain data.
struct Plan {
  std::string schedule;
  int micro_batches = 0;
  int rounds = 1;
  std::vector<Stage> stages;
  std::vector<std::vector<Action>> device_actions;  ///< per device, in execution order

  int device_count() const { return static_cast<int>(device_actions.size()); }
  int micro_batches_per_round() const { return micro_batches / rounds; }
  int round_of(int micro_batch) const { return micro_batch / micro_batches_per_round(); }
};

/// Checks that every (micro-batch, layer) has exactly one F or FB and one B or FB (training) or one
/// F
/// (`inference`), and that running the lists in order cannot deadlock. Pure.
Status validate_plan(const Plan& plan, int layer_count, bool inference);

/// One line a device: "F0:0 F0:1 B2:0 …" (stage:micro-batch).
std::string plan_to_text(const Plan& plan);

}  // namespace stagecoach
