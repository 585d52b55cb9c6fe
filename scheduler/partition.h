#pragma once

#include <functional>
#include <vector>

#include "core/status.h"
#include "scheduler/plan.h"
#include "scheduler/plan_builder.h"

namespace stagecoach {

/// Limits and sizes of a partition for evaluation.
struct PartitionRequest {
  std::vector<double> forward_costs;  ///< per layer, of one micro-batch; any unit of time
  int devices = 1;
  int micro_batches = 1;
  int max_stage_layers = 0;  ///< 0: no limit
  /// Whether a list of stages fits the devices' memory; called with complete partitions.
  std::function<bool(const std::vector<Stage>&)> fits;
};

/// Cuts a chain of layers into forward stages: for every contiguous sum as the longest stage time
/// t, packs greedily from the last layer back, and keeps the partition that fits and minimises
/// (M * S + N * (N - 1)) * t, RoundPipe's objective (arXiv 2604.27085). Not found when even one
/// layer a stage does not fit. Pure. Training stages are scheduler/stage_planner's.
Result<std::vector<Stage>> partition_for_inference(const PartitionRequest& request);

/// Cuts a chain of layers into exactly as many stages as there are `speeds`, 1 to as many as there
/// are layers: the longest, each by its speed, as short as can be, then the sum of squares
/// smallest. For schedules that bind stages to devices. Pure.
StageLayers partition_evenly(const std::vector<double>& layer_costs,
                             const std::vector<double>& speeds);

/// The same for `count` stages of one speed.
StageLayers partition_evenly(const std::vector<double>& layer_costs, int count);

}  // namespace stagecoach
