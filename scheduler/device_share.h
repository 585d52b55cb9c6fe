#pragma once

#include <cstdint>
#include <vector>

namespace stagecoach {

/// A block as its update is handed out.
struct UpdateLoad {
  int64_t elements = 0;         ///< that are trained
  bool fits_on_device = false;  ///< whether a device can update it
};

/// Per block: which of `devices` devices updates it, so that `share`, from 0 to 1, of all trained
/// elements are updated on devices, to within half of the largest block where enough blocks can be;
/// -1: the host does. Blocks are whole, spread evenly over their order, so that neither side is
/// done first in forward or backward order, and each goes to the device with the fewest elements.
/// Pure.
std::vector<int> share_updates(const std::vector<UpdateLoad>& blocks, double share, int devices);

}  // namespace stagecoach
