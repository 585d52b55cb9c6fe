#pragma once

#include <string>

#include "scheduler/plan_builder.h"

namespace stagecoach {

/// Every device runs all micro-batches through its first stage, then through its next, and back
/// again; stage s is on device s mod N. One stage a device is GPipe, several are looped BFS (and,
/// with stages streamed from the host, Mobius). `layers` has one entry a stage. Backwards run from
/// the first micro-batch to the last, or with `reverse_backward` the other way.
Plan breadth_first_plan(std::string schedule, int devices, int micro_batches,
                        const StageLayers& layers, bool reverse_backward);

}  // namespace stagecoach
