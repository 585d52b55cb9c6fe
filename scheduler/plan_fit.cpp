#include "scheduler/plan_fit.h"

#include <algorithm>

#include "scheduler/slot_recurrence.h"

namespace stagecoach {

ByteCount least_memory(const std::vector<PlannedDevice>& devices) {
  ByteCount least = 0;
  for (const PlannedDevice& device : devices) {
    if (device.memory_bytes == 0) continue;
    least = least == 0 ? device.memory_bytes : std::min(least, device.memory_bytes);
  }
  return least;
}

bool plan_fits(const StepSetup& setup, const CostTable& costs, const SlotPlan& plan) {
  size_t devices = setup.devices.size();
  if (plan.dispatch == SlotDispatch::kEarliestFinish) {
    std::vector<bool> fits = stages_that_fit(costs, plan.stages, setup.devices);
    for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
      auto first = fits.begin() + static_cast<int64_t>(stage * devices);
      if (std::find(first, first + static_cast<int64_t>(devices), true) ==
          first + static_cast<int64_t>(devices)) {
        return false;
      }
    }
    return true;
  }
  bool is_anywhere =
      plan.dispatch == SlotDispatch::kRotation || plan.dispatch == SlotDispatch::kEveryDevice;
  if (is_anywhere) {
    ByteCount least = least_memory(setup.devices);
    return least == 0 || costs.bytes(plan.stages).total() <= least;
  }
  std::vector<StageBytes> held(devices);
  for (size_t stage = 0; stage < plan.stages.size(); ++stage) {
    held[plan.device_of_stage[stage]].cover(costs.bytes(plan.stages[stage]));
  }
  for (size_t device = 0; device < devices; ++device) {
    ByteCount memory = setup.devices[device].memory_bytes;
    if (memory > 0 && held[device].total() > memory) return false;
  }
  return true;
}

}  // namespace stagecoach
