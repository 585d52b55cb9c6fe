#pragma once

#include <vector>

#include "scheduler/layer_profile.h"
#include "scheduler/plan.h"

namespace stagecoach {

/// The plan that runs `slots` for an iteration of `micro_batches` in `rounds`: every slot runs all
/// micro-batches of its round on the device that `device_of_slot` gives it
/// (StepPrediction::devices: one entry a slot, round after round). Pure.
Plan make_slot_plan(const SlotPlan& slots, const std::vector<int>& device_of_slot, int devices,
                    int micro_batches, int rounds);

}  // namespace stagecoach
