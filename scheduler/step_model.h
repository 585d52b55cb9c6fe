#pragma once

#include <string>
#include <vector>

#include "scheduler/cost_table.h"
#include "scheduler/slot_recurrence.h"

namespace stagecoach {

/// What keeps a device, a link or the host busy.
enum class StepLane : uint8_t {
  kCompute,
  kParametersUp,
  kActivationsUp,
  kActivationsDown,
  kGradientsDown,
  kHostUpdate
};
inline constexpr int kStepLanes = 6;

/// "compute", "parameters_up", … "host_update".
std::string_view step_lane_name(StepLane lane);

/// A predicted step of streamed stages.
struct StepPrediction {
  double step_ns = 0;      ///< an iteration, updates included; in steady state unless kBarrier
  double makespan_ns = 0;  ///< of the first iteration: first to last computing of any device
  double bubble = 0;  ///< idle share of compute: of the makespan with kBarrier, else of the step
  double update_exposed_ns = 0;           ///< kBarrier: from the end of compute to the last update
  double busy_fraction[kStepLanes] = {};  ///< of a step; of the mean device, or of the host
  std::vector<double> compute_ns;         ///< per device and iteration
  std::vector<int> devices;               ///< per slot of the first iteration

  double lane(StepLane lane) const { return busy_fraction[static_cast<int>(lane)]; }
  /// "compute", "link up", "link down" or "host update": which is busiest.
  std::string_view bottleneck() const;
};

/// Runs a few iterations of slots as a max-plus recurrence over micro-batches, lanes and updates.
/// Per device: a slot's parameters go up while the slot before it runs, once the one before that
/// has left their place, through what activations leave of the link; a micro-batch's inputs go up
/// while the one before it computes (two places), its outputs come down while the next one does;
/// gradients come down behind the slot, beside the next slot's outputs. The host makes one update
/// after the other, of the first layer that is ready, and an upload waits for the updates its
/// version names. Without bandwidths and update times it equals SlotRecurrence. `setup` is valid
/// (check_step_setup). Pure.
StepPrediction predict_step(const StepSetup& setup, const CostTable& costs, const SlotPlan& plan);

/// What no plan of these stages can beat: max(M * sum of t / sum of speeds, sum of t + (M_R - 1) *
/// t_max), the second by the fastest device and for one round; asynchronous updates let an
/// iteration start during the one before, which leaves the first. Nor what links and host need for
/// parameters, gradients and updates.
double step_lower_bound_ns(const StepSetup& setup, const CostTable& costs,
                           const std::vector<Stage>& stages);

/// Time of the longest stage on a device of speed 1.
double longest_stage_ns(const CostTable& costs, const std::vector<Stage>& stages);

}  // namespace stagecoach
