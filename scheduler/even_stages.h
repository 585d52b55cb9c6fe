#pragma once

#include <vector>

#include "core/status.h"
#include "scheduler/layer_profile.h"

namespace stagecoach {

/// Cuts layers into `count` stages of at least one layer for the least longest forward + recompute
/// + backward: exact. First layers. Invalid argument for more stages than layers. Pure.
Result<std::vector<int>> cut_evenly(const std::vector<LayerProfile>& layers, int count);

}  // namespace stagecoach
