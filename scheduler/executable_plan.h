#pragma once

#include "core/status.h"
#include "scheduler/plan.h"

namespace stagecoach {

/// Whether the executor can run a valid plan as one iteration that is the same bit for bit whatever
/// the plan: a static order without shared slots, one update, one copy of the weights; where
/// weights are bound, every backward stage is the layer range of a forward stage; where they are
/// streamed, a stage runs a round's whole backward in one go; and each stage adds weight gradients
/// in the order of micro-batches. Invalid argument or unimplemented names the schedule and the
/// place. Pure.
Status check_executable(const Plan& plan);

}  // namespace stagecoach
