#pragma once

#include <array>
#include <vector>

#include "memory/residency.h"
#include "scheduler/layer_profile.h"
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
  ByteCount resident = 0;             ///< where copies that stay lie
  /// Per slot, parallel to the blocks of its layout; empty: nothing stays.
  std::vector<std::vector<BlockCopy>> copies;

  /// Where `slot` finds block number `index` of its layout.
  BlockCopy copy(size_t slot, size_t index) const {
    return copies.empty() ? BlockCopy{} : copies[slot][index];
  }
};

/// Lays out all stages of a plan, streamed or bound (see layout_bound_stages; streamed backwards
/// always recompute). Pure.
std::vector<StageLayout> layout_stages(const Network& network, const Plan& plan,
                                       const MicroBatchShape& shape, bool recomputes);

/// What stays on `device` between the slots of a streamed plan, whose blocks all have one version.
/// Pure.
ResidencyPlan device_residency(const Plan& plan, const std::vector<StageLayout>& layouts,
                               int device, const ResidencyLimits& limits);

/// Whether passes that follow each other upload what their first slots read before the one before
/// has ended: otherwise the updates that make it wait for the gradients of its last slot. Pure.
bool next_pass_begins_early(UpdateMode update);

/// Carves the arena of `device`, with all of `resident` for what stays (none where stages are
/// bound). `layouts` are layout_stages of the plan. What micro-batches of a bound plan keep is
/// placed in the order of the list, each piece in the smallest gap that is free when its first
/// action comes, so that the peak is near the plan's own. What is uploaded for an action may arrive
/// while the action before it runs. Pure.
DeviceMemory carve_device_memory(const Plan& plan, const std::vector<StageLayout>& layouts,
                                 int device, bool rounds_gradients,
                                 const ResidencyLimits& resident = {});

}  // namespace stagecoach
