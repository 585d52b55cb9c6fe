#pragma once

#include <vector>

#include "core/trace.h"
#include "scheduler/step_model.h"

namespace stagecoach {

/// Where the slices of a predicted pass go.
struct PredictedPass {
  std::vector<int> processes;  ///< per device of the plan
  int first_device = 0;        ///< of the rotation in this pass
  int64_t start_ns = 0;        ///< when the first device began to compute
  int32_t iteration = 0;
};

/// The compute slices that `plan` was predicted to have, in the names of those that are measured.
/// `setup` holds the plan's devices. Pure.
std::vector<TraceSlice> predicted_slices(const StepSetup& setup, const SlotPlan& plan,
                                         const PredictedPass& pass);

}  // namespace stagecoach
