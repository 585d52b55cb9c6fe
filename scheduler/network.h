#pragma once

#include <memory>
#include <string>
#include <vector>

#include "scheduler/layer.h"
#include "scheduler/parameter_block.h"

namespace stagecoach {

/// A chain of layers and the blocks they use: everything the scheduler knows of a model. The last
/// layer yields one loss a row (or, for inference, whatever it outputs).
struct Network {
  std::string name;
  DType dtype = DType::kF32;  ///< of compute copies and boundaries
  std::vector<ParameterBlock> blocks;
  std::vector<std::unique_ptr<Layer>> layers;
  BoundaryInfo label;  ///< dtype and columns of labels; columns 0 when there are none
  BoundaryInfo document = {DType::kI32, 1};  ///< of document starts and positions, where needed

  /// Whether any layer needs it.
  bool takes(RowInput input) const;
  /// Dtype and columns of a row input; columns 0 when there is none.
  BoundaryInfo row_input(RowInput input) const;
  /// Parameters without alignment gaps, each block once.
  int64_t parameter_count() const;
  /// Those of blocks that are not frozen.
  int64_t trained_parameter_count() const;
  /// Whether adapters are trained on a base that is not.
  bool has_adapters() const;
  /// Bytes of one copy of block `index` in `dtype`.
  ByteCount block_bytes(int index, DType copy_dtype) const {
    return blocks[index].element_count * dtype_size_bytes(copy_dtype);
  }
  /// Bytes on the host of what the layers before `layer` report of one micro-batch, each padded.
  ByteCount report_bytes(const MicroBatchShape& shape, int layer) const;
  /// The same of all layers.
  ByteCount report_bytes(const MicroBatchShape& shape) const {
    return report_bytes(shape, static_cast<int>(layers.size()));
  }
  /// Checks that boundaries of neighbouring layers agree and block uses are numbered in layer
  /// order.
  Status validate() const;
};

}  // namespace stagecoach
