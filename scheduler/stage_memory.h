#pragma once

#include <cstdint>
#include <vector>

#include "core/bytes.h"
#include "scheduler/network.h"
#include "scheduler/plan.h"

namespace stagecoach {

/// Where a tensor of a running stage lies on the device.
enum class Region : uint8_t { kNone, kIn, kOut, kWork };

/// A place inside a region.
struct Place {
  Region region = Region::kNone;
  ByteCount offset = 0;
  ByteCount size = 0;
};

/// Device memory of one stage while it works on one micro-batch, as offsets. Everything a device
/// holds follows from this, so that planning and running cannot disagree.
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
  };
  struct Download {
    int boundary = 0;  ///< boundary b lies before layer b
    Place place;
  };

  std::vector<BlockPlace> blocks;        ///< every block once, in order of first use
  std::vector<GradientPlace> gradients;  ///< every use, in layer order; empty for F
  std::vector<LayerPlaces> layers;       ///< parallel to [first_layer, last_layer]
  std::vector<Download> downloads;       ///< boundaries an F sends home
  Place input, labels, input_grad, loss, workspace;
  ByteCount parameter_bytes = 0, gradient_bytes = 0, rounded_bytes = 0;
  ByteCount in_bytes = 0, out_bytes = 0, work_bytes = 0;
};

/// Region sizes of a device that runs any of a plan's stages.
struct DeviceMemoryNeed {
  ByteCount parameter_bytes = 0;  ///< twice: current and prefetched stage
  ByteCount gradient_bytes = 0;   ///< twice when computing in fp32, since they are sent from there
  ByteCount rounded_bytes = 0;    ///< twice
  ByteCount in_bytes = 0, out_bytes = 0;  ///< twice each: transfers run beside compute
  ByteCount work_bytes = 0;
  bool rounds_gradients = false;

  int gradient_buffers() const { return rounds_gradients ? 1 : 2; }
  ByteCount total() const;
};

/// Boundaries that must come home during the forward pass: where some stage starts. Index b is true
/// for boundary b (before layer b). Pure.
std::vector<bool> stage_starts(const std::vector<Stage>& stages, int layer_count);

/// Lays out one stage. `starts` is stage_starts of the whole plan. Pure.
StageLayout layout_stage(const Network& network, const Stage& stage,
                         const std::vector<bool>& starts, const MicroBatchShape& shape);

/// What a device needs to run any of `stages`. Pure.
DeviceMemoryNeed device_memory_need(const Network& network, const std::vector<Stage>& stages,
                                    const MicroBatchShape& shape);

/// Bytes of the regions for one stage alone, for "which layer does not fit" messages. Pure.
DeviceMemoryNeed stage_memory_need(const Network& network, const StageLayout& layout);

}  // namespace stagecoach
