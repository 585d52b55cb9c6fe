#pragma once

#include <vector>

#include "scheduler/cost_table.h"

namespace stagecoach {

/// The least memory of devices that have a limit; 0 where none has.
ByteCount least_memory(const std::vector<PlannedDevice>& devices);

/// Whether the devices that `plan` gives each stage hold it.
bool plan_fits(const StepSetup& setup, const CostTable& costs, const SlotPlan& plan);

}  // namespace stagecoach
