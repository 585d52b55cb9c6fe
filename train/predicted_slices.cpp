#include "train/predicted_slices.h"

#include <algorithm>
#include <cmath>

namespace stagecoach {

std::vector<TraceSlice> predicted_slices(const StepSetup& setup, const SlotPlan& plan,
                                         const PredictedPass& pass) {
  std::vector<ComputedInterval> intervals;
  predict_step(setup, CostTable(setup.layers), plan, &intervals);
  double first_ns = 0;
  if (!intervals.empty()) first_ns = intervals.front().start_ns;
  for (const ComputedInterval& interval : intervals) {
    first_ns = std::min(first_ns, interval.start_ns);
  }
  std::vector<TraceSlice> slices;
  for (const ComputedInterval& interval : intervals) {
    if (interval.iteration != 0) continue;
    int device = (interval.device + pass.first_device) % setup.device_count();
    TraceSlice slice;
    slice.name = action_kind_name(plan.stages[interval.stage].kind);
    slice.category = "compute";
    slice.process = pass.processes[device];
    slice.start_ns = pass.start_ns + std::llround(interval.start_ns - first_ns);
    slice.end_ns = pass.start_ns + std::llround(interval.end_ns - first_ns);
    slice.micro_batch = interval.micro_batch;
    slice.stage = interval.stage;
    slice.iteration = pass.iteration;
    slices.push_back(slice);
  }
  return slices;
}

}  // namespace stagecoach
