#pragma once

#include <cstdint>
#include <vector>

#include "core/status.h"
#include "model/weight_folder.h"
#include "model/weight_transfer.h"
#include "scheduler/network.h"

namespace stagecoach {

/// Elements of a tensor that are elements of a block, in the same order. With `scales` the tensor
/// and they are packed matrices [matrices, rows, groups, 16] and [matrices, rows, groups]
/// (model/mxfp4.h), the elements are those of the transposed matrices, and a part is whole ones.
struct WeightPart {
  const FolderTensor* tensor;
  int64_t first = 0;  ///< element of the tensor
  int64_t count = 0;
  int block = 0;
  int64_t offset = 0;  ///< element of the block
  const FolderTensor* scales = nullptr;

  ByteCount size_bytes() const;  ///< in the file
};

/// Which elements of which tensors are the parameters of `network`, adapters apart, in
/// block order. Refused as `load_weights` says.
Result<std::vector<WeightPart>> match_weights(const WeightFolder& folder, const Network& network,
                                              WeightProof proof = WeightProof::kTiedHeads);

}  // namespace stagecoach
