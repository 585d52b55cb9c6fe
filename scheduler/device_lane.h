#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/status.h"
#include "hal/device.h"
#include "memory/activation_store.h"
#include "memory/arena.h"
#include "memory/host_state.h"
#include "scheduler/bulk_setup.h"
#include "scheduler/device_memory.h"
#include "scheduler/device_slots.h"
#include "scheduler/lane_record.h"
#include "scheduler/layer_timing.h"
#include "scheduler/network.h"
#include "scheduler/plan.h"
#include "scheduler/resident_places.h"
#include "scheduler/stage_memory.h"
#include "scheduler/submitter.h"

namespace stagecoach {

/// Host memory and numbers of one pass over a batch.
struct PassInput {
  bool inference = false;
  bool times_layers = false;  ///< every layer between two events of its own
  uint32_t iteration = 0;
  uint64_t seed = 0;
  float loss_scale = 1;
  LossTerms loss_terms;
  std::vector<BufferView> inputs;  ///< per micro-batch, pinned
  /// Per micro-batch, pinned; those that the network takes.
  PerRowInput<std::vector<BufferView>> rows;
  std::vector<BufferView> losses;  ///< per micro-batch: where the last layer's output goes, pinned
  /// Per micro-batch: where all layers' reports go, pinned; empty: nobody wants them.
  std::vector<BufferView> reports;
};

/// Everything of a plan that is the same for all devices.
struct PlanContext {
  const Network* network = nullptr;
  HostState* host_state = nullptr;
  ActivationStore* store = nullptr;
  MicroBatchShape shape;
  const Plan* plan = nullptr;
  std::vector<StageLayout> layouts;    ///< per stage
  std::vector<DeviceMemory> memories;  ///< per device
  const PassInput* input = nullptr;
  std::vector<int> trace_processes;  ///< per device; empty: its position
  int64_t version = 0;               ///< of the blocks it reads
  int record = 0;                    ///< 0 or 1: which of each device's records it fills
};

/// Where a finished transfer can be waited for.
struct Landing {
  Timepoint timepoint;
  Device* device = nullptr;  ///< whose stream it is; null: host memory that was there all along
};

/// What an action means for the gradient sums of its stage and round.
struct SumsRole {
  bool opens = false;   ///< first to add to them
  bool closes = false;  ///< last to add to them: they go home
  int guard = 0;        ///< which timepoint says that the sums are free again
  int sums = 0;         ///< which buffer they lie in
  int rounded = 0;      ///< which buffer they are rounded into
};

/// One device at work: its streams, its memory, and the submission of slots and actions. Only
/// enqueues; waits are stream waits.
/// Thread rule: `submit_*` on the device's submit thread; the rest while nothing is being
/// submitted.
class DeviceLane {
 public:
  static Result<std::unique_ptr<DeviceLane>> create(Device& device, ByteCount arena_bytes,
                                                    const BulkSetup& bulk = {});

  Device& device() const { return device_; }
  /// Every stream of every lane.
  std::vector<Stream*> streams() const;
  /// Pinned memory through which pageable state travels.
  ByteCount ring_bytes() const;
  /// Drops all work; whoever waits for it gets `status`. Any thread.
  void abandon(const Status& status);

  /// Carves the arena for a pass and cuts the device's list into slots. Everything of the pass
  /// before must have been submitted; it may still be running. `context` must live until everything
  /// of this pass has been submitted.
  Status begin_pass(const PlanContext& context, int device_index);
  const std::vector<Slot>& slots() const { return slots_; }
  int micro_batch_of(int action) const { return action_at(action).micro_batch; }
  /// Whether the action is the last to add to the gradients of its stage and round.
  bool closes_gradients(int action) const { return roles_[action].closes; }

  /// Uploads the parameters of slot `slot`, layer by layer: streamed into the buffer that slot - 2
  /// used, bound once a pass. Does nothing for slots that upload nothing.
  Status submit_parameters(int slot);
  /// Enqueues one micro-batch: inputs up, compute, outputs down. `input` and `output_grad` say when
  /// the activation and the gradient it reads are on the host; `freed`, when the places in the
  /// store that it downloads to may be written.
  Status submit_action(int slot, int action, const Landing& input, const Landing& output_grad,
                       std::span<const Landing> freed);
  /// Results of the last submitted action: its downloads share one timepoint.
  Landing outputs_landing() const { return outputs_landing_; }
  /// When the last submitted action has read the store.
  Landing inputs_landing() const { return Landing{inputs_ready_, &device_}; }
  /// When the parameters of a slot whose upload has been submitted are on the device.
  Timepoint parameters_landing(int slot) const {
    return parameters_ready_[slots_[slot].buffer].back();
  }
  /// Of the last action that closed gradients: when the gradient of layout.gradients[index] has
  /// landed.
  const std::vector<Landing>& gradient_landings() const { return gradient_landings_; }

  /// Marks the end of every stream, so that the whole pass can be awaited.
  Result<std::vector<Timepoint>> submit_end();

  const LaneRecord& record(int index) const { return records_[static_cast<size_t>(index)]; }

 private:
  explicit DeviceLane(Device& device) : device_(device) {}

  /// Of a lane that is no bulk lane.
  Stream& stream(LaneKind lane) const { return *streams_[static_cast<int>(lane)]; }
  Result<int> stamp(LaneKind lane);
  /// Runs `work` of a layer, between two events where layers are timed.
  template <typename Work>
  Status run_layer(int layer, LayerPhase phase, Work work);
  void add_span(LaneKind lane, int action, int slot, ByteCount bytes, int start, int end);
  Status wait_for(LaneKind lane, const Landing& landing);
  Status wait_for_layer(int slot, int action, int layer_offset);
  void assign_roles();
  /// Says when the new pass may write to each part of the arena, which the one before may still be
  /// using.
  Status take_over_arena();
  Status upload_block(int slot, size_t index, ByteCount& bytes);
  /// Notes when places of copies that stay are free: those that `slot` was the last to read.
  void free_resident_copies(int slot);
  LaneRecord& record() { return records_[static_cast<size_t>(context_->record)]; }
  Status upload_inputs(int slot, int action, const Landing& input, const Landing& output_grad);
  Status compute(int slot, int action);
  Status open_gradients(const StageLayout& layout, const SumsRole& role);
  Status run_forward(const StageLayout& layout, LayerRun& run, int slot, int action);
  Status run_backward(const StageLayout& layout, LayerRun& run, int slot, int action);
  Status finish_layer_gradients(const StageLayout& layout, int slot, int action, int layer);
  Status download_outputs(int slot, int action, std::span<const Landing> freed);
  BufferView view(const Place& place, int action) const;
  BufferView sum_view(const StageLayout::GradientPlace& gradient, const SumsRole& role) const;
  BufferView rounded_view(const StageLayout::GradientPlace& gradient, const SumsRole& role) const;
  void bind_layer(const StageLayout& layout, int layer_offset, int slot, int action, LayerRun& run);
  const Action& action_at(int index) const;
  const Stage& stage_of(int slot) const { return context_->plan->stages[slots_[slot].stage]; }
  const StageLayout& layout_of(int slot) const { return context_->layouts[slots_[slot].stage]; }
  const DeviceMemory& memory() const { return context_->memories[device_index_]; }

  /// Most block uses of a layer; checked when a pass begins.
  static constexpr int kMaxBlockUses = 8;

  Device& device_;
  std::array<std::unique_ptr<Stream>, kLaneCount> streams_;  ///< none for bulk lanes
  std::unique_ptr<BulkLane> parameters_up_, gradients_down_;
  std::optional<Arena> arena_;

  const PlanContext* context_ = nullptr;
  int device_index_ = 0;
  std::vector<Slot> slots_;
  std::vector<SumsRole> roles_;           ///< per action
  BufferView memory_;                     ///< the arena, as carved by memory()
  std::optional<DeviceMemoryNeed> need_;  ///< of the pass before
  int first_turn_ = 0;                    ///< which of two buffers the first slot of the pass takes
  /// Per parameter buffer: when each layer's blocks have landed, from the stage's first on.
  std::vector<std::vector<Timepoint>> parameters_ready_;
  std::vector<Timepoint> parameters_free_;  ///< per parameter buffer
  ResidentPlaces resident_;
  std::vector<Timepoint> sums_free_;  ///< per SumsRole::guard
  std::vector<bool> is_loaded_;       ///< per block, bound plans only
  std::array<Timepoint, 2> rounded_free_, in_free_, out_free_;
  Timepoint inputs_ready_, compute_done_;
  Landing outputs_landing_;
  std::vector<Landing> gradient_landings_;
  std::array<BufferView, kMaxBlockUses> parameter_views_, gradient_views_;

  std::array<LaneRecord, 2> records_;
};

}  // namespace stagecoach
