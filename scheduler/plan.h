#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stagecoach {

/// What an action does with one micro-batch on one stage.
enum class ActionKind : uint8_t {
  kForward,          ///< F: forward
  kBackward,         ///< B: full backward (with recompute where the stage is streamed)
  kForwardBackward,  ///< FB: the fused stage: forward, loss and backward without recompute
  kInputGradient,    ///< I: the half of a backward that earlier stages wait for
  kWeightGradient    ///< W: the other half, which may run later
};

/// "F", "B", "FB", "I" or "W".
std::string_view action_kind_name(ActionKind kind);

/// Whether the kind makes outputs, makes the gradient of its input, and completes the gradient of
/// its weights.
bool runs_forward(ActionKind kind);
bool makes_input_gradient(ActionKind kind);
bool makes_weight_gradient(ActionKind kind);

/// Consecutive layers that run together, and what runs on them. Forward and backward stages are cut
/// separately, so a layer is in one F or FB stage and in one B or FB, or one I and one W stage.
struct Stage {
  ActionKind kind = ActionKind::kForward;
  int first_layer = 0;
  int last_layer = 0;  ///< inclusive

  int layer_count() const { return last_layer - first_layer + 1; }
  bool operator==(const Stage&) const = default;
};

/// One entry of a device's list.
struct Action {
  int stage = 0;           ///< index into Plan::stages
  int micro_batch = 0;     ///< of the whole plan
  bool with_next = false;  ///< shares one slot with the next entry: both start and end together

  bool operator==(const Action&) const = default;
};

/// Who decides the order in which a device runs its actions.
enum class Admission : uint8_t {
  kStatic,  ///< the list
  kGate     ///< the next backward if it has arrived, else a forward while the limit allows it
};

/// Which update's weights a micro-batch of window k (see Plan::window_of) computes with.
enum class VersionRule : uint8_t {
  kFlush,    ///< version k in forward and backward: synchronous training
  kCurrent,  ///< the newest local version in each: PACI; forward and backward may differ (drift)
  kStash,    ///< forward takes the newest local version, backward the same one again: PipeDream
  kDelayed   ///< version max(0, k - 1) in both: PipeDream-2BW, RoundPipe's asynchronous mode
};

/// What an update waits for beside the gradients of its own layer.
enum class UpdateScope : uint8_t {
  kLayer,  ///< nothing: updates run as gradients land, as without a global norm
  kModel   ///< the gradients of all layers: all updates at once, between iterations
};

/// Where weights live between actions.
enum class Residence : uint8_t {
  kStreamed,  ///< on the host; any device may run any stage, boundaries pass through the host
  kBound      ///< on the device; F, B, I and W of one (micro-batch, layer) share a device
};

/// What runs where in which order, made by a pure function before anything runs. Stages are in
/// data-flow order: F from the first layer on, FB, then B, I and W from the last layer back. Order,
/// admission, versions and residence are independent of each other. Plain data.
struct Plan {
  std::string schedule;
  int micro_batches = 0;
  int rounds = 1;
  int accumulation = 0;  ///< micro-batches of one update; 0: all of them
  Admission admission = Admission::kStatic;
  VersionRule version_rule = VersionRule::kFlush;
  UpdateScope update_scope = UpdateScope::kLayer;
  Residence residence = Residence::kStreamed;
  int weight_copies = 1;             ///< devices that may hold the same bound layer
  std::vector<int> in_flight_limit;  ///< per device: most forwards awaiting backward; empty: none
  std::vector<Stage> stages;
  std::vector<std::vector<Action>> device_actions;  ///< per device, in execution order

  int device_count() const { return static_cast<int>(device_actions.size()); }
  int micro_batches_per_round() const { return micro_batches / rounds; }
  int round_of(int micro_batch) const { return micro_batch / micro_batches_per_round(); }
  /// Micro-batches of one update, and the update a micro-batch contributes to.
  int window_size() const { return accumulation > 0 ? accumulation : micro_batches; }
  int window_of(int micro_batch) const { return micro_batch / window_size(); }
  const Stage& stage_of(const Action& action) const { return stages[action.stage]; }
  /// One more than the last layer any stage names.
  int layer_count() const;
  bool operator==(const Plan&) const = default;
};

/// Numbers stages as a pipeline does: per entry of `Plan::stages`, the index of its layer range
/// among the distinct ranges in order of appearance. In a bound plan F, B, I and W of one stage
/// share a number.
std::vector<int> stage_numbers(const Plan& plan);

/// One line a device: "F0:0 F0:1 B2:0 …" (index into stages:micro-batch).
std::string plan_to_text(const Plan& plan);

}  // namespace stagecoach
