#pragma once

#include <vector>

#include "scheduler/stage_memory.h"

namespace stagecoach {

/// Hands out aligned offsets inside one region.
class RegionSizer {
 public:
  explicit RegionSizer(Region region) : region_(region) {}
  Place take(ByteCount size);
  ByteCount used() const { return used_; }

 private:
  Region region_;
  ByteCount used_ = 0;
};

/// Places the blocks of `stage` in `region`, each once; those in `held` are there already, and new
/// ones are added to it.
void place_parameters(const Network& network, const Stage& stage, RegionSizer& region,
                      std::vector<StageLayout::BlockPlace>& held, StageLayout& layout);

/// Places a gradient sum for every block use of `stage` in `sums`.
void place_gradients(const Network& network, const Stage& stage, RegionSizer& sums,
                     StageLayout& layout);

/// Gradients of the boundaries inside the stage, in one of two buffers in turn.
void place_inner_gradients(const Network& network, const Stage& stage, const MicroBatchShape& shape,
                           RegionSizer& work, StageLayout& layout);

/// Raises each region of `need` to what `layout` takes.
void grow_need(DeviceMemoryNeed& need, const StageLayout& layout);

}  // namespace stagecoach
