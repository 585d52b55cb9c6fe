#pragma once

#include <string>

#include "core/status.h"
#include "scheduler/schedules/schedule.h"
#include "tools/command.h"

namespace stagecoach {

/// `stagecoach simulate --layer-times`: what the command line said.
struct LayerSimulation {
  std::string schedule, layer_times, devices, update;
  int micro_batches = 0;
  ScheduleParameters parameters;  ///< those given
};

/// Cuts the layers into stages, simulates the schedule and prints what it takes. Streamed slots
/// (roundpipe, single) are planned and run by the step model with all transfers and updates;
/// schedules that bind stages to devices cut the layers for the least longest stage, keep weights
/// on their devices and are charged compute and hand-overs.
Result<int> simulate_layers(const LayerSimulation& simulation, const CommandContext& context);

}  // namespace stagecoach
