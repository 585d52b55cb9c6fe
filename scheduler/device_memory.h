#pragma once

#include <array>
#include <vector>

#include "scheduler/stage_memory.h"

namespace stagecoach {

/// Where each region starts for one action, as offsets in its device's arena.
struct ActionPlaces {
  std::array<ByteCount, kRegionCount> start{};
  ByteCount of(Region region) const { return start[static_cast<int>(region)]; }
  void set(Region region, ByteCount offset) { start[static_cast<int>(region)] = offset; }
};

/// How one device's arena is carved for a plan, as offsets. Where there is one buffer both entries
/// name it.
struct DeviceMemory {
  DeviceMemoryNeed need;
  std::array<ByteCount, 2> parameters{}, gradients{}, rounded{};
  std::vector<ActionPlaces> actions;  ///< parallel to the device's list
};

/// Lays out all stages of a plan, streamed or bound (see layout_bound_stages; streamed backwards
/// always recompute). Pure.
std::vector<StageLayout> layout_stages(const Network& network, const Plan& plan,
                                       const MicroBatchShape& shape, bool recomputes);

/// Carves the arena of `device`. `layouts` are layout_stages of the plan. What micro-batches of a
/// bound plan keep is placed in the order of the list, each piece in the smallest gap
/// that is free when its first action comes, so that the peak is near the plan's own. What is
/// uploaded for an action may arrive while the action before it runs. Pure.
DeviceMemory carve_device_memory(const Plan& plan, const std::vector<StageLayout>& layouts,
                                 int device, bool rounds_gradients);

}  // namespace stagecoach
