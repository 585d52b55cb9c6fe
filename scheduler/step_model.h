#pragma once

#include <vector>

#include "scheduler/cost_table.h"
#include "scheduler/slot_recurrence.h"
#include "scheduler/step_prediction.h"

namespace stagecoach {

/// Runs a few iterations of slots as a max-plus recurrence over micro-batches, lanes and updates.
/// Per device: a slot's parameters go up while the slot before it runs, once the one before that
/// has left their place, through what activations leave of the link; a micro-batch's inputs go up
/// while the one before it computes (two places), its outputs come down while the next one does;
/// gradients come down behind the slot, beside the next slot's outputs. The host makes one update
/// after the other, of the first layer that is ready, and an upload waits for the updates its
/// version names: with kBarrier all updates wait for the last gradient. Copies and updates share
/// uplinks and host memory where the setup limits them, those of earlier slots first. Without
/// bandwidths and update times it equals SlotRecurrence. `setup` is valid (check_step_setup).
/// `timeline`, where given, receives what was computed when, in slot order. Pure.
StepPrediction predict_step(const StepSetup& setup, const CostTable& costs, const SlotPlan& plan,
                            std::vector<ComputedInterval>* timeline = nullptr);

/// What no plan of these stages can beat: max(M * sum of t / sum of speeds, sum of t + (M_R - 1) *
/// t_max), the second by the fastest device and for one round; asynchronous updates let an
/// iteration start during the one before, which leaves the first. Nor what links and host need for
/// parameters, gradients and updates.
double step_lower_bound_ns(const StepSetup& setup, const CostTable& costs,
                           const std::vector<Stage>& stages);

/// Time of the longest stage on a device of speed 1.
double longest_stage_ns(const CostTable& costs, const std::vector<Stage>& stages);

}  // namespace stagecoach
