#pragma once

#include <vector>

#include "scheduler/stage_memory.h"

namespace stagecoach {

/// Device of each stage number (see stage_numbers) of a bound plan with one copy of the weights.
/// Pure.
std::vector<int> stage_devices(const Plan& plan);

/// Lays out all stages of a bound plan, parallel to Plan::stages. Parameters and gradient sums of a
/// device's stages lie side by side, each block once. A forward saves what its backward reads, or,
/// where the plan `recomputes`, keeps its input only and B or I run it once more. F, B, I and W of
/// one layer range agree on kIn, kSaved, kGradient and kHalf. Pure.
std::vector<StageLayout> layout_bound_stages(const Network& network, const Plan& plan,
                                             const MicroBatchShape& shape, bool recomputes);

}  // namespace stagecoach
