#pragma once

#include <string>
#include <utility>
#include <vector>

#include "scheduler/plan.h"

namespace stagecoach {

/// One entry of a pipeline's list: a pass over one model stage (numbered from the first layer on).
struct StageWork {
  ActionKind kind = ActionKind::kForward;
  int stage = 0;
  int micro_batch = 0;
  bool with_next = false;  ///< shares a slot with the next entry
};

/// First and last layer of each model stage.
using StageLayers = std::vector<std::pair<int, int>>;

/// One layer a stage.
StageLayers single_layer_stages(int stage_count);

/// A plan whose forward and backward stages are the same layer ranges, from one list a device. Its
/// stage table has the (kind, stage) pairs that occur, in data-flow order. Residence is bound, the
/// other policies have their defaults. Pure.
Plan build_plan(std::string schedule, int micro_batches, const StageLayers& layers,
                const std::vector<std::vector<StageWork>>& device_work);

/// The plan `iterations` times in a row, one update each; micro-batches are numbered on. Pure.
Plan repeat_plan(const Plan& plan, int iterations);

}  // namespace stagecoach
