#pragma once

#include <string>

#include "core/status.h"
#include "scheduler/planner.h"

namespace stagecoach {

/// Fills `run.inference_plan` on those of `run.devices` with which evaluation is fastest, and
/// raises `run.arena_bytes` to what it needs. Resource exhausted when no device holds single
/// layers. Pure.
Status plan_inference(const Network& network, const PlanRequest& request, PlannedRun& run);

/// Names the layer whose stage needs the most when every layer is a stage of its own, and what
/// `device` of the request would have to have.
Status does_not_fit(const Network& network, const PlanRequest& request, size_t device);

/// ", N of them for updates there (optimizer.device_share)", in bytes; empty where there are none.
std::string for_updates_there(const PlanRequest& request);

/// The device of the request with the least, or most, free memory.
size_t smallest_device(const PlanRequest& request);
size_t largest_device(const PlanRequest& request);

}  // namespace stagecoach
