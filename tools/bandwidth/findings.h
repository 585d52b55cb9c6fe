#pragma once

#include <vector>

#include "tools/bandwidth/results.h"

namespace stagecoach {

/// What the report says about the machine, worst first: wrong bytes, a device behind its equals,
/// unequal directions, slow duplex, shared capacity, slow kinds of memory, chunks that are too
/// small, long waits of urgent copies, copies that run one after the other, doubtful figures. Each
/// with one remedy. Pure.
std::vector<Finding> find_problems(const BandwidthReport& report);

}  // namespace stagecoach
