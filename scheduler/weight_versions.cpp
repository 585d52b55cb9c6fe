#include "scheduler/weight_versions.h"

#include <algorithm>
#include <set>

namespace stagecoach {

namespace {

/// Follows one device's stages through their updates.
class DeviceVersions {
 public:
  DeviceVersions(const Plan& plan, const std::vector<int>& numbers, int stage_count,
                 int64_t update_ns)
      : plan_(plan),
        numbers_(numbers),
        update_ns_(update_ns),
        weight_gradients_(stage_count, 0),
        landed_ns_(stage_count),
        held_(stage_count) {}

  void run(const Action& action, const PlanTimeline::Interval& interval, WeightVersions& versions) {
    now_ns_ = interval.start_ns;
    const Stage& stage = plan_.stage_of(action);
    int number = numbers_[action.stage];
    int m = action.micro_batch;
    if (runs_forward(stage.kind)) {
      int version = version_now(number, m);
      versions.forward[number][m] = version;
      held_[number].insert(version);
      note_kept(number);
    }
    if (makes_input_gradient(stage.kind)) {
      bool stashed = plan_.version_rule == VersionRule::kStash;
      versions.backward[number][m] = stashed ? versions.forward[number][m] : version_now(number, m);
    }
    if (makes_weight_gradient(stage.kind)) {
      if (++weight_gradients_[number] % plan_.window_size() == 0) {
        landed_ns_[number].push_back(interval.end_ns + update_ns_);
      }
      auto found = held_[number].find(versions.forward[number][m]);
      if (found != held_[number].end()) held_[number].erase(found);
    }
  }

  int kept() const { return kept_; }

 private:
  /// Updates that have landed when the action at hand starts.
  int newest(int number) const {
    const std::vector<int64_t>& landed = landed_ns_[number];
    return static_cast<int>(std::upper_bound(landed.begin(), landed.end(), now_ns_) -
                            landed.begin());
  }

  int version_now(int number, int micro_batch) const {
    switch (plan_.version_rule) {
      case VersionRule::kFlush:
      case VersionRule::kDelayed:
        return required_version(plan_, micro_batch);
      case VersionRule::kCurrent:
      case VersionRule::kStash:
        return newest(number);
    }
    return 0;
  }

  /// Stashed versions that some forward still waits with, and the newest one.
  void note_kept(int number) {
    int kept = plan_.version_rule == VersionRule::kDelayed ? 2 : 1;
    if (plan_.version_rule == VersionRule::kStash) {
      std::set<int> distinct(held_[number].begin(), held_[number].end());
      distinct.insert(newest(number));
      kept = static_cast<int>(distinct.size());
    }
    kept_ = std::max(kept_, kept);
  }

  const Plan& plan_;
  const std::vector<int>& numbers_;
  int64_t update_ns_;
  int64_t now_ns_ = 0;
  std::vector<int> weight_gradients_;            ///< per stage number
  std::vector<std::vector<int64_t>> landed_ns_;  ///< per stage number and update
  std::vector<std::multiset<int>> held_;         ///< versions of micro-batches in flight
  int kept_ = 0;
};

}  // namespace

WeightVersions weight_versions(const Plan& plan, const PlanTimeline& timeline, int64_t update_ns) {
  std::vector<int> numbers = stage_numbers(plan);
  int stage_count = numbers.empty() ? 0 : *std::max_element(numbers.begin(), numbers.end()) + 1;
  WeightVersions versions;
  versions.forward.assign(stage_count, std::vector<int>(plan.micro_batches, -1));
  versions.backward = versions.forward;
  for (int device = 0; device < plan.device_count(); ++device) {
    DeviceVersions state(plan, numbers, stage_count, update_ns);
    for (int index : timeline.order[device]) {
      state.run(plan.device_actions[device][index], timeline.actions[device][index], versions);
    }
    versions.kept.push_back(state.kept());
  }
  return versions;
}

Drift version_drift(const WeightVersions& versions) {
  Drift drift;
  for (size_t stage = 0; stage < versions.forward.size(); ++stage) {
    int largest = 0, sum = 0, count = 0;
    for (size_t m = 0; m < versions.forward[stage].size(); ++m) {
      if (versions.forward[stage][m] < 0 || versions.backward[stage][m] < 0) continue;
      int difference = versions.backward[stage][m] - versions.forward[stage][m];
      largest = std::max(largest, difference);
      sum += difference;
      ++count;
    }
    drift.max.push_back(largest);
    drift.mean.push_back(count == 0 ? 0 : static_cast<double>(sum) / count);
  }
  return drift;
}

int drift_bound(int in_flight_limit, int accumulation) {
  return (in_flight_limit - 1 + accumulation - 1) / accumulation;
}

int paci_forward_version(int micro_batch, int in_flight_limit, int accumulation) {
  return std::max(0, micro_batch - (in_flight_limit - 1)) / accumulation;
}

int paci_backward_version(int micro_batch, int accumulation) {
  return micro_batch / accumulation;
}

std::vector<int> gradient_delay(const Plan& plan, const WeightVersions& versions) {
  std::vector<int> delay;
  for (const std::vector<int>& backward : versions.backward) {
    int largest = 0;
    for (size_t m = 0; m < backward.size(); ++m) {
      if (backward[m] < 0) continue;
      largest = std::max(largest, plan.window_of(static_cast<int>(m)) - backward[m]);
    }
    delay.push_back(largest);
  }
  return delay;
}

}  // namespace stagecoach
