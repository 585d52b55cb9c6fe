#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/bytes.h"
#include "scheduler/network.h"
#include "scheduler/plan.h"

namespace stagecoach {

/// Where a tensor of a running stage lies on the device. The last three exist in bound plans only:
/// there a micro-batch keeps them, and its input, from one action to another.
enum class Region : uint8_t {
  kNone,
  kIn,        ///< what is uploaded for an action; bound: kept from F to B or W
  kOut,       ///< what is downloaded after an action
  kWork,      ///< free again after each action
  kSaved,     ///< from F to B or W
  kGradient,  ///< gradient of the stage's output; from I to W where backward is split
  kHalf       ///< what I leaves for W
};
inline constexpr int kRegionCount = 7;

/// A place inside a region.
struct Place {
  Region region = Region::kNone;
  ByteCount offset = 0;
  ByteCount size = 0;
};

/// Which forward pass an action runs, if any.
enum class ForwardPass : uint8_t { kNone, kPlain, kSaving };

/// Device memory of one stage while it works on one micro-batch, as offsets, and what its actions
/// do. Everything a device holds follows from this, so that planning and running cannot disagree.
struct StageLayout {
  struct BlockPlace {
    int block = 0;
    ByteCount offset = 0;  ///< in the parameter region
    ByteCount size = 0;
  };
  struct GradientPlace {
    int layer = 0;  ///< index in the network
    int use = 0;    ///< which of the layer's block uses
    int block = 0;
    int site = 0;
    ByteCount offset = 0;  ///< fp32 sum, in the gradient region
    ByteCount size = 0;
    ByteCount rounded_offset = 0;  ///< copy in the gradient dtype, in the rounded region
    ByteCount rounded_size = 0;
  };
  struct LayerPlaces {
    Place output;
    Place output_grad;
    Place saved;
    Place workspace;
    Place report;
  };
  struct Download {
    int boundary = 0;  ///< boundary b lies before layer b
    Place place;
  };

  ForwardPass forward = ForwardPass::kPlain;
  std::optional<BackwardPart> backward;
  bool takes_input = true;      ///< uploads the boundary before the stage, and row inputs
  bool takes_gradient = false;  ///< uploads the gradient of the boundary after the stage

  std::vector<BlockPlace> blocks;        ///< every block once, in order of first use
  std::vector<GradientPlace> gradients;  ///< uses of trained blocks, in layer order
  std::vector<LayerPlaces> layers;       ///< parallel to [first_layer, last_layer]
  std::vector<Download> downloads;       ///< boundaries a forward sends home
  Place input, input_grad, loss;
  PerRowInput<Place> rows;       ///< those that any of its layers needs
  Place reports;                 ///< what a forward's layers report, one behind the other
  ByteCount reports_offset = 0;  ///< of that among all layers' on the host
  ByteCount parameter_bytes = 0, rounded_bytes = 0;
  ByteCount gradient_offset = 0, gradient_bytes = 0;  ///< the stage's part of the gradient region
  ByteCount in_bytes = 0, out_bytes = 0, work_bytes = 0;
  ByteCount saved_bytes = 0, output_grad_bytes = 0, half_bytes = 0;  ///< bound plans only
};

/// Region sizes of a device that runs any of a plan's stages.
struct DeviceMemoryNeed {
  bool bound = false;
  bool rounds_gradients = false;
  ByteCount parameter_bytes = 0;  ///< streamed: twice, for the current and the prefetched stage
  ByteCount gradient_bytes = 0;   ///< streamed fp32: twice, since they are sent from there
  ByteCount rounded_bytes = 0;    ///< twice
  ByteCount in_bytes = 0, out_bytes = 0;  ///< twice each: transfers run beside compute
  ByteCount work_bytes = 0;
  ByteCount kept_bytes = 0;      ///< bound: inputs, activations and gradients of all micro-batches
  ByteCount resident_bytes = 0;  ///< streamed: parameters that stay from one slot to a later one

  int parameter_buffers() const { return bound ? 1 : 2; }
  int gradient_buffers() const { return bound || rounds_gradients ? 1 : 2; }
  ByteCount total() const;
  bool operator==(const DeviceMemoryNeed&) const = default;
};

/// Every layer as a stage of its own, the last one's forward and backward fused: what needs the
/// least device memory.
std::vector<Stage> narrowest_stages(int layer_count);

/// Boundaries that must come home during the forward pass: where some stage starts. Index b is true
/// for boundary b (before layer b). Pure.
std::vector<bool> stage_starts(const std::vector<Stage>& stages, int layer_count);

/// Lays out one stage of a streamed plan. `starts` is stage_starts of the whole plan. Pure.
StageLayout layout_stage(const Network& network, const Stage& stage,
                         const std::vector<bool>& starts, const MicroBatchShape& shape);

/// What a device needs to run any of the streamed `stages`. Pure.
DeviceMemoryNeed device_memory_need(const Network& network, const std::vector<Stage>& stages,
                                    const MicroBatchShape& shape);

/// Bytes of the regions for one streamed stage alone, for "which layer does not fit" messages.
/// Pure.
DeviceMemoryNeed stage_memory_need(const Network& network, const StageLayout& layout);

}  // namespace stagecoach
