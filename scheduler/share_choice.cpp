#include "scheduler/share_choice.h"

#include <algorithm>

#include "scheduler/cost_table.h"
#include "scheduler/step_model.h"

namespace stagecoach {

namespace {

constexpr int kParts = 8;

/// What updates of everything take on the devices, beside passes that keep links as busy as in
/// `alone`; 0: not known.
double device_updates_ns(const StepSetup& setup, const StepPrediction& alone,
                         const UpdateTraffic& traffic) {
  double up_rate = 0, down_rate = 0;
  for (const PlannedDevice& device : setup.devices) {
    if (device.up_bytes_per_ns <= 0 || device.down_bytes_per_ns <= 0) return 0;
    up_rate += device.up_bytes_per_ns;
    down_rate += device.down_bytes_per_ns;
  }
  double up_idle = 1 - alone.lane(StepLane::kParametersUp) - alone.lane(StepLane::kActivationsUp);
  double down_idle =
      1 - alone.lane(StepLane::kGradientsDown) - alone.lane(StepLane::kActivationsDown);
  if (up_idle <= 0 || down_idle <= 0) return 0;
  return std::max(traffic.up / (up_rate * up_idle), traffic.down / (down_rate * down_idle)) /
         kUpdaterLinkShare;
}

}  // namespace

ShareChoice choose_device_share(const StepSetup& setup, const SlotPlan& slots,
                                const UpdateTraffic& traffic) {
  CostTable costs(setup.layers);
  StepPrediction alone = predict_step(setup, costs, slots);
  double host_ns = costs.update_ns();
  ShareChoice choice{0, alone.step_ns, alone.step_ns, host_ns, 0};
  double device_ns = device_updates_ns(setup, alone, traffic);
  if (device_ns <= 0 || host_ns <= 0) return choice;
  double norm = traffic.host_norm / traffic.host;
  for (int part = 1; part <= kParts; ++part) {
    double share = static_cast<double>(part) / kParts;
    ShareChoice other = choice;
    other.share = share;
    other.host_updates_ns = host_ns * (norm + (1 - share) * (1 - norm));
    other.device_updates_ns = device_ns * share;
    StepSetup shared = setup;
    double factor = std::max(other.host_updates_ns, other.device_updates_ns) / host_ns;
    for (LayerProfile& layer : shared.layers) layer.update_ns *= factor;
    other.step_ns = predict_step(shared, CostTable(shared.layers), slots).step_ns;
    bool is_worth_it = other.step_ns <= choice.host_only_ns * (1 - kWorthSharing);
    if (is_worth_it && other.step_ns < choice.step_ns) choice = other;
  }
  return choice;
}

}  // namespace stagecoach
