#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "model/segment.h"
#include "model/segment_memory.h"

namespace stagecoach {

/// A layer made of segments; `make_segment_layer` is the way to get one. Forward passes write
/// activations into `saved`, `workspace` or `output`; backward passes walk the segments in reverse,
/// input part then weight part, the first writer of a gradient overwriting and later ones adding.
/// Layouts are planned once a micro-batch size and kept, so enqueuing does not allocate.
/// Thread rule: any thread.
class SegmentLayer final : public Layer {
 public:
  /// `spec` has been checked; `parameters` holds the tensors of every use's block.
  SegmentLayer(SegmentChainSpec spec, std::vector<ParameterBlock> use_blocks);

  const std::string& name() const override { return spec_.name; }
  std::span<const BlockUse> uses() const override { return spec_.uses; }
  BoundaryInfo input() const override;
  BoundaryInfo output() const override;
  bool needs(RowInput input) const override { return needs_[input]; }
  ByteCount report_bytes(const MicroBatchShape& shape) const override {
    return spec_.reports ? shape.rows() * dtype_size_bytes(DType::kF32) : 0;
  }
  LayerMemory memory(const MicroBatchShape& shape) const override;
  LayerFlop flop(const MicroBatchShape& shape) const override;

  Status forward(const LayerRun& run) const override;
  Status forward_saving(const LayerRun& run) const override;
  Status backward(const LayerRun& run, BackwardPart part) const override;

  const SegmentChainSpec& spec() const { return spec_; }
  /// Dtype and columns of a row input.
  BoundaryInfo row_input(RowInput input) const;
  /// Parameters of block use `use`.
  const ParameterBlock& use_block(int use) const { return use_blocks_[use]; }
  /// Memory of all passes for `shape`; stays valid as long as the layer.
  const ChainLayout& layout(const MicroBatchShape& shape) const;
  /// Whether a segment behind `segment` reads `activation` too, so that its gradient holds a part
  /// already when `segment`'s backward pass comes.
  bool gradient_accumulates(int segment, int activation) const;

 private:
  Status run_forward(const LayerRun& run, const ForwardLayout& layout) const;
  Status run_backward(const LayerRun& run, const ChainLayout& layout, BackwardPart part) const;
  void drop_frozen_weight_part(SegmentIo& io) const;
  Status check_run(const LayerRun& run, ByteCount workspace_bytes) const;
  Status check_parameters(const LayerRun& run, bool gradients) const;

  SegmentChainSpec spec_;
  std::vector<ParameterBlock> use_blocks_;
  std::vector<SegmentIo>
      ios_;  ///< as the segments declare them, less weight parts of what is frozen
  PerRowInput<bool> needs_;
  std::vector<int> last_readers_;  // per activation: last segment that reads it, or -1
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::unique_ptr<const ChainLayout>> layouts_;  // by rows
};

}  // namespace stagecoach
