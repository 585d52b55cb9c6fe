#pragma once

#include <cstdint>
#include <vector>

#include "core/status.h"
#include "model/weight_folder.h"
#include "scheduler/network.h"

namespace stagecoach {

/// Elements of a tensor that are elements of a block, in the same order.
struct WeightPart {
  const FolderTensor* tensor;
  int64_t first = 0;  ///< element of the tensor
  int64_t count = 0;
  int block = 0;
  int64_t offset = 0;  ///< element of the block
};

/// Which elements of which tensors are the parameters of `network`, adapters apart, in
/// block order. Reads tensors
/// only to compare a tied head with its embedding. Refused as `load_weights` says.
Result<std::vector<WeightPart>> match_weights(const WeightFolder& folder, const Network& network);

}  // namespace stagecoach
