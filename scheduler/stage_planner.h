#pragma once

#include <functional>
#include <vector>

#include "core/status.h"
#include "scheduler/step_model.h"

namespace stagecoach {

/// What a search for stages may do.
struct StageSearchOptions {
  int max_stage_layers = 0;  ///< 0: no limit
  /// Most partitions are left unlooked at once this many slots have been simulated; 0: as many as
  /// the planning budget allows (94 layers in less than 50 ms).
  int64_t most_slots = 0;
  /// A further check of complete partitions; empty: none.
  std::function<bool(const std::vector<Stage>&)> fits;
};

/// The default of `most_slots`.
int64_t slots_within_budget(int layers);

/// Stages, where they run, and what they are predicted to take.
struct PlannedStages {
  SlotPlan slots;
  StepPrediction prediction;
  double t_max_ns = 0;        ///< longest stage on a device of speed 1
  int64_t candidates = 0;     ///< partitions that were packed
  int64_t slots_visited = 0;  ///< by the step model
};

/// Cuts a chain of layers into forward stages, one fused stage and backward stages with the least
/// predicted step time on `setup.devices`, in their order. Candidates are the greedy packings for
/// every contiguous sum of layer times as the longest stage (RoundPipe, arXiv 2604.27085) under
/// time and memory, ranked by predict_step, pruned by step_lower_bound_ns and SlotRecurrence; the
/// best are then improved by moving, joining and splitting at single cuts. RoundPipe's own rule is
/// among the candidates, so the result is never predicted to be slower. Equal devices rotate; on
/// unequal ones stages are cut to the speed and memory of the place they fall on, or equal stages
/// go to the device that ends first, whichever is faster. Deterministic: limits on work are counts,
/// not times. With shared limits the search runs without them (setups_without_limits) and its
/// results are ranked with them. Resource exhausted when even single layers do not fit. Pure.
Result<PlannedStages> plan_stages(const StepSetup& setup, const StageSearchOptions& options = {});

/// The prediction for RoundPipe's released rule on the same devices; not found when its stages do
/// not fit.
Result<PlannedStages> plan_by_roundpipe_rule(const StepSetup& setup);

}  // namespace stagecoach
