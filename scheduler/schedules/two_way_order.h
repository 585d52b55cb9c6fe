#pragma once

#include <vector>

#include "scheduler/plan_builder.h"

namespace stagecoach {

/// What one rank of a two-way pipeline knows of itself.
struct TwoWayRank {
  int depth = 0;                  ///< ranks between this one and the nearer end of the pipeline
  int ranks = 1;                  ///< ranks from an end to the middle
  int per_way = 1;                ///< micro-batches of each way
  int stage[2] = {};              ///< model stage of the rank's first and second way
  int first_micro_batch[2] = {};  ///< of each way
};

/// DualPipe's list of one rank (DeepSeek-V3, arXiv 2412.19437): micro-batches go two ways at once;
/// in the steady phase a forward of one way shares its slot with a backward of the other, so that
/// one computes while the other communicates. The two ways are two directions (DualPipe) or two
/// folded chunks (DualPipeV). Needs at least 2 * ranks micro-batches a way. Pure.
std::vector<StageWork> two_way_order(const TwoWayRank& rank);

}  // namespace stagecoach
