#include "scheduler/run_tuner.h"

#include <algorithm>
#include <cmath>

namespace stagecoach {

RunTuner::RunTuner(std::vector<LayerProfile> by_flop, std::vector<PlannedDevice> hints)
    : by_flop_(std::move(by_flop)),
      hints_(std::move(hints)),
      timing_(static_cast<int>(by_flop_.size()), static_cast<int>(hints_.size())),
      moved_(hints_.size(), 0) {}

void RunTuner::add_pass(const Plan& plan, const std::vector<int>& devices,
                        const IterationReport& report) {
  switch (phase_) {
    case Phase::kWarmUp:
      if (++passes_ < kWarmUpPasses) return;
      phase_ = Phase::kTiming;
      passes_ = 0;
      return;
    case Phase::kTiming:
      // One that was begun before times were asked for.
      if (report.up.empty()) return;
      for (LayerSample sample : report.layer_samples) {
        sample.device = devices[sample.device];
        timing_.add(sample);
      }
      for (size_t device = 0; device < devices.size(); ++device) {
        timing_.add_link(devices[device], true, report.up[device]);
        timing_.add_link(devices[device], false, report.down[device]);
      }
      if (++passes_ >= kTimedPasses && !timing_.is_empty()) phase_ = Phase::kDue;
      return;
    case Phase::kDue:
      return;
    case Phase::kSettled:
      compare(plan, devices, report);
      return;
  }
}

void RunTuner::add_update(double update_ns) {
  if (phase_ != Phase::kSettled) timing_.add_update(update_ns);
}

MeasuredRun RunTuner::take_measured() {
  measured_ = timing_.measured(by_flop_, hints_);
  costs_.emplace(measured_.layers);
  timing_.clear();
  phase_ = Phase::kSettled;
  passes_ = 0;
  std::fill(moved_.begin(), moved_.end(), 0);
  return measured_;
}

void RunTuner::compare(const Plan& plan, const std::vector<int>& devices,
                       const IterationReport& report) {
  // Bound plans keep the cut they began with: nothing would follow from a comparison.
  if (!costs_ || plan.residence == Residence::kBound || report.action_ns.empty()) return;
  for (size_t device = 0; device < devices.size(); ++device) {
    double expected = 0, taken = 0;
    const std::vector<Action>& actions = plan.device_actions[device];
    for (size_t index = 0; index < actions.size(); ++index) {
      expected += costs_->time_ns(plan.stage_of(actions[index]));
      taken += static_cast<double>(report.action_ns[device][index]);
    }
    if (expected <= 0) continue;
    double ratio = taken * measured_.devices[devices[device]].speed / expected;
    int& moved = moved_[devices[device]];
    moved = std::abs(ratio - 1) > kMoved ? moved + 1 : 0;
    if (moved < patience_) continue;
    patience_ *= 2;
    phase_ = Phase::kTiming;
    passes_ = 0;
    return;
  }
}

}  // namespace stagecoach
