#include "scheduler/step_limits.h"

#include <algorithm>
#include <set>
#include <utility>

namespace stagecoach {

namespace {

/// About what an iteration takes: its compute, its updates or its parameters and gradients.
double iteration_ns(const StepSetup& setup, const CostTable& costs) {
  Stage all{ActionKind::kForwardBackward, 0, costs.layer_count() - 1};
  double work_ns = costs.time_ns(all) * setup.micro_batches / setup.device_count();
  const StageBytes& bytes = costs.bytes(all);
  double sent = setup.rounds * static_cast<double>(2 * bytes.parameters + bytes.gradients);
  double rate = 0;
  for (const PlannedDevice& device : setup.devices) rate += device.up_bytes_per_ns;
  if (setup.host_bytes_per_ns > 0) rate = std::min(rate, setup.host_bytes_per_ns);
  double sent_ns = rate > 0 ? sent / rate : 0;
  return std::max({work_ns, costs.update_ns(), sent_ns});
}

}  // namespace

bool has_shared_limits(const StepSetup& setup) {
  return !setup.uplinks.empty() || setup.host_bytes_per_ns > 0;
}

std::vector<StepSetup> setups_without_limits(const StepSetup& setup) {
  StepSetup alone = setup, together = setup;
  std::vector<int> users(setup.uplinks.size(), 0);
  for (const PlannedDevice& device : setup.devices) {
    if (device.uplink >= 0) ++users[device.uplink];
  }
  for (PlannedDevice& device : together.devices) {
    auto limit = [](double& rate, double shared, int among) {
      if (rate > 0 && shared > 0) rate = std::min(rate, shared / among);
    };
    limit(device.up_bytes_per_ns, setup.host_bytes_per_ns, 2 * setup.device_count());
    limit(device.down_bytes_per_ns, setup.host_bytes_per_ns, 2 * setup.device_count());
    if (device.uplink < 0) continue;
    const SharedUplink& uplink = setup.uplinks[device.uplink];
    limit(device.up_bytes_per_ns, uplink.up_bytes_per_ns, users[device.uplink]);
    limit(device.down_bytes_per_ns, uplink.down_bytes_per_ns, users[device.uplink]);
  }
  for (StepSetup* one : {&alone, &together}) {
    one->uplinks.clear();
    one->host_bytes_per_ns = 0;
    for (PlannedDevice& device : one->devices) device.uplink = -1;
  }
  return {std::move(alone), std::move(together)};
}

StepLimits::StepLimits(const StepSetup& setup, const CostTable& costs) {
  if (!has_shared_limits(setup)) return;
  // Spans are short beside an iteration, and few beside its copies.
  constexpr double kSpansPerIteration = 1024;
  constexpr double kNoLimit = 1e9;
  double span_ns = iteration_ns(setup, costs) / kSpansPerIteration;
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
