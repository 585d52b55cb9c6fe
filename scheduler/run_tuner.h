#pragma once

#include <optional>
#include <vector>

#include "scheduler/cost_table.h"
#include "scheduler/iteration_report.h"
#include "scheduler/layer_timing.h"
#include "scheduler/plan.h"

namespace stagecoach {

/// Decides in which passes of a run layers are timed, and when what was measured calls for a plan:
/// once after the first passes, then only when times have moved.
/// Thread rule: one thread.
class RunTuner {
 public:
  /// Passes that are left out, since memory is touched and libraries are loaded in them.
  static constexpr int kWarmUpPasses = 1;
  static constexpr int kTimedPasses = 3;
  /// A device has moved when its compute takes this much more or less than planned ...
  static constexpr double kMoved = 0.05;
  /// ... for so many passes in a row; twice as many after each time that layers were timed again,
  /// so that a noisy machine is not planned for over and over.
  static constexpr int kPatiencePasses = 4;
  /// A plan gives way to one that is predicted to take this much less.
  static constexpr double kWorthChanging = 0.02;

  /// `by_flop` and `hints`: see LayerTiming::measured.
  RunTuner(std::vector<LayerProfile> by_flop, std::vector<PlannedDevice> hints);

  /// Times nothing, now or later.
  void settle() { phase_ = Phase::kSettled; }
  /// Whether the next training pass is to time its layers.
  bool times_layers() const { return phase_ == Phase::kTiming; }
  /// A training pass of `plan`, whose device d is device `devices[d]` of the hints.
  void add_pass(const Plan& plan, const std::vector<int>& devices, const IterationReport& report);
  void add_update(double update_ns);
  /// Whether passes are neither warmed up nor timed now.
  bool is_settled() const { return phase_ == Phase::kSettled; }
  /// Whether enough was measured: the caller plans from `measured` and goes on.
  bool is_due() const { return phase_ == Phase::kDue; }
  /// Ends a phase of timing: later passes are compared with what has been measured.
  MeasuredRun take_measured();
  bool has_measured() const { return costs_.has_value(); }
  /// As last taken.
  const MeasuredRun& measured() const { return measured_; }

 private:
  enum class Phase : uint8_t { kWarmUp, kTiming, kDue, kSettled };
  void compare(const Plan& plan, const std::vector<int>& devices, const IterationReport& report);

  std::vector<LayerProfile> by_flop_;
  std::vector<PlannedDevice> hints_;
  LayerTiming timing_;
  MeasuredRun measured_;
  std::optional<CostTable> costs_;  ///< of measured_
  Phase phase_ = Phase::kWarmUp;
  int passes_ = 0;  ///< in this phase
  int patience_ = kPatiencePasses;
  std::vector<int> moved_;  ///< per device: passes in a row
};

}  // namespace stagecoach
