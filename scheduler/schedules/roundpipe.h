#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/plan.h"

namespace stagecoach {

/// How slots find their device.
enum class Dispatch : uint8_t {
  kRotation,  ///< slot g, counted over all rounds, runs on device g mod N
  kStatic     ///< stage s always runs on device floor(s * N / S): the baseline to compare with
};

/// RoundPipe's order (arXiv 2604.27085): every stage is a slot that runs all micro-batches of a
/// round on one device, slots go to devices in rotation, and the rotation continues across rounds.
/// `first_slot` continues it across iterations. One device gives the `single` schedule. Pure.
Plan make_roundpipe_plan(std::vector<Stage> stages, int devices, int micro_batches, int rounds,
                         int64_t first_slot, Dispatch dispatch);

/// The same with a device for every slot, counted over all rounds: for unequal devices. Pure.
Plan make_placed_plan(std::vector<Stage> stages, int devices, int micro_batches, int rounds,
                      const std::vector<int>& slot_devices);

/// Stages of a short chain of layers: `forward_stages` F, one fused FB of the last layer and
/// `backward_stages` - 1 B, each cut as evenly as whole layers allow. Without F the fused stage is
/// the only one. For plans whose slots are equally long anyway. Pure.
std::vector<Stage> equal_slots(int forward_stages, int backward_stages);

}  // namespace stagecoach
