#include "scheduler/device_planner.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <tuple>

namespace stagecoach {

namespace {

/// No limit counts as the most memory, and a link that takes no time as the fastest.
double or_most(double value) {
  return value == 0 ? std::numeric_limits<double>::infinity() : value;
}

/// The slower direction of its link.
double least_link(const PlannedDevice& device) {
  return std::min(or_most(device.up_bytes_per_ns), or_most(device.down_bytes_per_ns));
}

auto by_speed(const PlannedDevice& device) {
  return std::tuple(-device.speed, -or_most(static_cast<double>(device.memory_bytes)),
                    -or_most(device.up_bytes_per_ns), -or_most(device.down_bytes_per_ns));
}

/// Devices in an order that does not depend on the given one, apart from equal ones.
std::vector<int> canonical_order(const std::vector<PlannedDevice>& devices) {
  std::vector<int> order(devices.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int left, int right) {
    return by_speed(devices[left]) < by_speed(devices[right]);
  });
  return order;
}

/// All devices, then ever fewer: without the slowest, those of least memory, those of slow links;
/// then each alone.
std::vector<std::vector<int>> device_sets(const std::vector<PlannedDevice>& devices) {
  std::vector<int> order = canonical_order(devices);
  std::vector<int> by_memory = order;
  std::stable_sort(by_memory.begin(), by_memory.end(), [&](int left, int right) {
    return or_most(static_cast<double>(devices[left].memory_bytes)) >
           or_most(static_cast<double>(devices[right].memory_bytes));
  });
  std::vector<std::vector<int>> sets = {order};
  std::vector<int> by_link = order;
  std::stable_sort(by_link.begin(), by_link.end(), [&](int left, int right) {
    return least_link(devices[left]) > least_link(devices[right]);
  });
  for (const std::vector<int>& from : {order, by_memory, by_link}) {
    for (size_t count = from.size() - 1; count > 0; --count) {
      // Equal devices go together, so that it does not matter which of them comes first.
      if (devices[from[count]].equals(devices[from[count - 1]])) continue;
      std::vector<int> set;
      for (int device : order) {
        bool kept = std::find(from.begin(), from.begin() + static_cast<int64_t>(count), device) !=
                    from.begin() + static_cast<int64_t>(count);
        if (kept) set.push_back(device);
      }
      if (std::find(sets.begin(), sets.end(), set) == sets.end()) sets.push_back(set);
    }
  }
  // Whatever the reason, none alone may be better than together.
  for (size_t index = 0; index < order.size(); ++index) {
    if (index > 0 && devices[order[index]].equals(devices[order[index - 1]])) continue;
    std::vector<int> alone = {order[index]};
    if (std::find(sets.begin(), sets.end(), alone) == sets.end()) sets.push_back(alone);
  }
  return sets;
}

StepSetup with_devices(const StepSetup& setup, const std::vector<int>& set) {
  StepSetup part = setup;
  part.devices.clear();
  for (int device : set) part.devices.push_back(setup.devices[device]);
  return part;
}

/// No plan on these devices takes less: all work that no partition saves, shared by speed.
double least_step_ns(const StepSetup& setup, const CostTable& costs, const std::vector<int>& set) {
  double speeds = 0;
  for (int device : set) speeds += setup.devices[device].speed;
  Stage all{ActionKind::kForwardBackward, 0, costs.layer_count() - 1};
  return setup.micro_batches * costs.time_ns(all) / speeds;
}

/// Why `device` is not in a plan; `with_all_ns` is infinite when the plan with it fits no device.
std::string reason_to_leave_out(const PlannedDevice& device, const CostTable& costs,
                                double with_all_ns, double step_ns) {
  int largest = 0;
  ByteCount most = 0, least = std::numeric_limits<ByteCount>::max();
  for (int layer = 0; layer < costs.layer_count(); ++layer) {
    ByteCount need = costs.bytes(Stage{ActionKind::kBackward, layer, layer}).total();
    ByteCount forward = costs.bytes(Stage{ActionKind::kForward, layer, layer}).total();
    least = std::min({least, need, forward});
    if (need > most) largest = layer;
    most = std::max(most, need);
  }
  if (device.memory_bytes > 0 && device.memory_bytes < least) {
    return fmt::format("its {} hold not even the smallest stage, which needs {}",
                       format_bytes(device.memory_bytes), format_bytes(least));
  }
  if (with_all_ns == std::numeric_limits<double>::infinity()) {
    return fmt::format("its {} do not hold layer '{}', which needs {}",
                       format_bytes(device.memory_bytes), costs.layer(largest).name,
                       format_bytes(most));
  }
  if (with_all_ns <= step_ns) {
    return "every stage ends sooner on another device, or does not fit it";
  }
  return fmt::format("with it a step would take {:.4g} ms, without it {:.4g} ms", with_all_ns / 1e6,
                     step_ns / 1e6);
}

void fill_shares(const StepSetup& setup, const CostTable& costs, double with_all_ns,
                 DevicePlan& plan) {
  const StepPrediction& prediction = plan.planned.prediction;
  plan.shares.assign(setup.devices.size(), {});
  double work = 0;
  for (size_t index = 0; index < plan.devices.size(); ++index) {
    work += prediction.compute_ns[index] * setup.devices[plan.devices[index]].speed;
  }
  for (size_t index = 0; index < plan.devices.size(); ++index) {
    const PlannedDevice& device = setup.devices[plan.devices[index]];
    DeviceShare& share = plan.shares[plan.devices[index]];
    share.work = prediction.compute_ns[index] * device.speed / work;
    share.used = true;
  }
  for (size_t device = 0; device < setup.devices.size(); ++device) {
    DeviceShare& share = plan.shares[device];
    if (share.used || !share.reason.empty()) continue;
    share.reason =
        reason_to_leave_out(setup.devices[device], costs, with_all_ns, prediction.step_ns);
  }
}

/// Takes devices on which nothing runs out of the plan. A rotation comes to all of them in time.
void drop_idle_devices(const StepSetup& setup, const CostTable& costs, DevicePlan& plan) {
  StepPrediction& prediction = plan.planned.prediction;
  if (plan.planned.slots.dispatch == SlotDispatch::kRotation) return;
  std::vector<int> place(plan.devices.size(), -1), devices;
  for (size_t index = 0; index < plan.devices.size(); ++index) {
    if (prediction.compute_ns[index] <= 0) continue;
    place[index] = static_cast<int>(devices.size());
    devices.push_back(plan.devices[index]);
  }
  if (devices.size() == plan.devices.size()) return;
  for (int& device : plan.planned.slots.device_of_stage) device = place[device];
  plan.devices = std::move(devices);
  // Idle shares are those of the devices that take part.
  prediction = predict_step(with_devices(setup, plan.devices), costs, plan.planned.slots);
}

}  // namespace

Result<DevicePlan> plan_for_devices(const StepSetup& setup, const StageSearchOptions& options) {
  STAGECOACH_RETURN_IF_ERROR(check_step_setup(setup));
  CostTable costs(setup.layers);
  DevicePlan best;
  double with_all = std::numeric_limits<double>::infinity(), least = with_all;
  int64_t candidates = 0, visited = 0;
  Status failure;
  std::vector<std::vector<int>> sets = device_sets(setup.devices);
  StageSearchOptions search = options;
  if (search.most_slots == 0) search.most_slots = slots_within_budget(costs.layer_count());
  search.most_slots /= static_cast<int64_t>(std::min<size_t>(sets.size(), 4));
  for (const std::vector<int>& set : sets) {
    if (least_step_ns(setup, costs, set) >= least) continue;
    Result<PlannedStages> planned = plan_stages(with_devices(setup, set), search);
    if (!planned.is_ok()) {
      if (failure.is_ok()) failure = planned.status();
      continue;
    }
    candidates += planned->candidates;
    visited += planned->slots_visited;
    double step = planned->prediction.step_ns;
    if (set.size() == setup.devices.size()) with_all = step;
    if (step >= least * (1 - 1e-9)) continue;
    least = step;
    best.planned = std::move(planned).value();
    best.devices = set;
  }
  if (best.devices.empty()) return failure;
  best.planned.candidates = candidates;
  best.planned.slots_visited = visited;
  drop_idle_devices(setup, costs, best);
  fill_shares(setup, costs, with_all, best);
  return best;
}

}  // namespace stagecoach
