#pragma once

#include <vector>

#include "core/status.h"
#include "scheduler/layer_profile.h"

namespace stagecoach {

/// Cuts layers into stages of at least one layer, one for each speed, for the least longest forward
/// + recompute + backward at that speed: exact. First layers. Invalid argument for more stages than
/// layers. Pure.
Result<std::vector<int>> cut_evenly(const std::vector<LayerProfile>& layers,
                                    const std::vector<double>& speeds);

}  // namespace stagecoach
