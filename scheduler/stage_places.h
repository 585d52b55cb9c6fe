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

/// Places a gradient sum for every use of a trained block by `stage` in `sums`.
void place_gradients(const Network& network, const Stage& stage, RegionSizer& sums,
                     StageLayout& layout);

/// Gradients of the boundaries inside the stage, in one of two buffers in turn.
void place_inner_gradients(const Network& network, const Stage& stage, const MicroBatchShape& shape,
                           RegionSizer& work, StageLayout& layout);

/// Row inputs that any layer of the stage needs.
void place_row_inputs(const Network& network, const Stage& stage, const MicroBatchShape& shape,
                      RegionSizer& in, StageLayout& layout);

/// A forward that keeps nothing: outputs go to `out` where some stage starts, else to one of two
/// buffers in turn.
void place_forward(const Network& network, const Stage& stage, const std::vector<bool>& starts,
                   const MicroBatchShape& shape, RegionSizer& out, RegionSizer& work,
                   StageLayout& layout);

/// A fused stage, or a backward that recomputes: outputs and saved tensors of all layers stay until
/// their backward. The gradient of the stage's output, if there is one, comes in through `in`.
void place_backward(const Network& network, const Stage& stage, const MicroBatchShape& shape,
                    RegionSizer& in, RegionSizer& out, RegionSizer& work, StageLayout& layout);

/// What layers of a stage that goes forward report.
void place_reports(const Network& network, const Stage& stage, const MicroBatchShape& shape,
                   RegionSizer& out, StageLayout& layout);

/// Raises each region of `need` to what `layout` takes.
void grow_need(DeviceMemoryNeed& need, const StageLayout& layout);

}  // namespace stagecoach
