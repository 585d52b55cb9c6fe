#pragma once

#include <cstddef>

#include "core/bytes.h"

namespace stagecoach {

/// Asks that pages of [data, data + size) which nobody has touched come from all NUMA nodes that
/// this process may use, in turn: so threads on any of them, and devices, have the bandwidth of
/// all. Nothing where there is one node. Where the system refuses, pages come from the nodes of the
/// threads that touch them first, and the log says so.
void spread_over_numa_nodes(std::byte* data, ByteCount size);

}  // namespace stagecoach
