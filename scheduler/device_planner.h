#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "scheduler/stage_planner.h"

namespace stagecoach {

/// What a device does in a plan.
struct DeviceShare {
  bool used = false;
  double work = 0;     ///< share of the step's arithmetic
  std::string reason;  ///< why it is left out
};

/// Stages for devices that need not be equal.
struct DevicePlan {
  PlannedStages planned;
  std::vector<int> devices;         ///< of StepSetup: what the plan calls device 0, 1, …
  std::vector<DeviceShare> shares;  ///< parallel to StepSetup::devices
};

/// plan_stages on those of `setup.devices` with which a step is shortest. Does not depend on their
/// order: the plan names devices by falling speed and memory. Each device after the first is left
/// out when a step is shorter without it and those behind it, by speed or by memory, or when no
/// stage falls to it; `reason` says so. Hence never slower than the fastest device that holds the
/// model's layers alone. Resource exhausted when none holds them. Pure.
Result<DevicePlan> plan_for_devices(const StepSetup& setup, const StageSearchOptions& options = {});

}  // namespace stagecoach
