#pragma once

#include <vector>

#include "scheduler/cost_table.h"

namespace stagecoach {

/// What slots amount to.
struct SlotTimes {
  double step_ns = 0;           ///< an iteration; in steady state where updates overlap
  double makespan_ns = 0;       ///< of the first iteration
  std::vector<double> busy_ns;  ///< compute of each device in an iteration
  std::vector<int> devices;     ///< per slot of the first iteration
};

/// Iterations that are simulated, and those whose ends a step is measured between: one isolated
/// iteration with kBarrier; else the steady ones, which the first updates have already held up.
struct MeasuredIterations {
  int count = 1;
  int from = -1;  ///< a step is the mean time of the iterations after this one; -1: of the first

  int measured() const { return count - 1 - from; }
};
MeasuredIterations measured_iterations(const StepSetup& setup);

/// Per stage and device: whether the device may run the stage. The stages a device may run fit it
/// together; smaller ones go first. Pure.
std::vector<bool> stages_that_fit(const CostTable& costs, const std::vector<Stage>& stages,
                                  const std::vector<PlannedDevice>& devices);

/// Step time from compute and hop times alone, transfers and updates free: a lower bound of
/// predict_step, exact for simulate_plan. All micro-batches of a slot take the same time, so the
/// ends of a slot are a maximum of few lines over the micro-batch number, and a slot costs a few
/// operations instead of one a micro-batch. Reuse one object for many partitions. Not thread-safe.
class SlotRecurrence {
 public:
  /// Both must outlive this.
  SlotRecurrence(const StepSetup& setup, const CostTable& costs);

  double step_ns(const SlotPlan& plan) { return run(plan, nullptr); }
  SlotTimes times(const SlotPlan& plan);
  /// Slots looked at so far: a measure of work that is the same on every machine.
  int64_t slots_visited() const { return visited_; }

 private:
  struct Line {
    double start_ns = 0;
    double slope_ns = 0;
  };

  double run(const SlotPlan& plan, SlotTimes* times);
  void prepare(const SlotPlan& plan);
  double run_iteration(const SlotPlan& plan, int iteration, SlotTimes* times);
  int device_for(const SlotPlan& plan, int stage, double gate_ns) const;
  double end_on(int stage, int device, double gate_ns) const;
  void run_slot(int stage, int device, double gate_ns);

  const StepSetup& setup_;
  const CostTable& costs_;
  std::vector<Line> lines_;        ///< ends of the chain's last slot, steepest first
  std::vector<double> times_ns_;   ///< per stage
  std::vector<int> gate_stage_;    ///< per stage: the backward of its first layer; -1: none
  std::vector<bool> fits_;         ///< per stage and device
  std::vector<double> free_ns_;    ///< per device
  std::vector<double> end_ns_[3];  ///< per stage: of the last iterations, by their number mod 3
  int last_device_ = -1;
  int64_t slot_ = 0;
  int64_t visited_ = 0;
};

}  // namespace stagecoach
