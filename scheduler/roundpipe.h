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

}  // namespace stagecoach
