#pragma once

#include <vector>

#include "tools/bandwidth/results.h"

namespace stagecoach {

/// What the results say about where host memory was: other NUMA nodes that are slower, nodes that
/// are so alike that binding may not have worked, memory that could not be had. Pure.
std::vector<Finding> find_placement_problems(const BandwidthReport& report);

}  // namespace stagecoach
