#include "scheduler/step_limits.h"

#include <set>

namespace stagecoach {

StepLimits::StepLimits(const StepSetup& setup, const CostTable& costs) {
  // Spans are short beside an iteration and long beside a copy.
  constexpr double kSpansPerIteration = 4096;
  constexpr double kNoLimit = 1e9;
  Stage all{ActionKind::kForwardBackward, 0, costs.layer_count() - 1};
  double work_ns = costs.time_ns(all) * setup.micro_batches / setup.device_count();
  double span_ns = work_ns / kSpansPerIteration;
  auto limit = [](double bytes_per_ns) { return bytes_per_ns > 0 ? bytes_per_ns : kNoLimit; };
  for (const SharedUplink& uplink : setup.uplinks) {
    up_.emplace_back(limit(uplink.up_bytes_per_ns), span_ns);
    down_.emplace_back(limit(uplink.down_bytes_per_ns), span_ns);
  }
  if (setup.host_bytes_per_ns > 0) host_.emplace_back(setup.host_bytes_per_ns, span_ns);
  std::set<int> used;
  for (const PlannedDevice& device : setup.devices) {
    if (device.uplink >= 0) used.insert(device.uplink);
  }
  uplinks_in_use_ = static_cast<int>(used.size());
}

std::vector<SharedRate*> StepLimits::of_host_work() {
  std::vector<SharedRate*> limits;
  if (!host_.empty()) limits.push_back(&host_.front());
  return limits;
}

std::vector<SharedRate*> StepLimits::of(std::vector<SharedRate>& uplinks,
                                        const PlannedDevice& device) {
  std::vector<SharedRate*> limits = of_host_work();
  if (device.uplink >= 0) limits.push_back(&uplinks[device.uplink]);
  return limits;
}

}  // namespace stagecoach
