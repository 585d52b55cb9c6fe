#pragma once

#include <string>

#include "tools/bandwidth/bandwidth_plan.h"

namespace stagecoach {

/// What the host really has for a plan.
struct UsableMemory {
  ByteCount needed = 0;  ///< by the group that takes most
  ByteCount bytes = 0;   ///< of that, what there is
  std::string note;      ///< where that is less
};

/// Has a process of its own touch what `plan` needs and a ninth more (MemorySteps), since totals
/// and free bytes of a guest may be wrong either way: memory appears when it is touched, or is
/// promised twice. Plans that need less than a GiB, and options that name no such process, are not
/// asked about.
UsableMemory find_usable_memory(const BandwidthPlan& plan, const BandwidthOptions& options);

}  // namespace stagecoach
