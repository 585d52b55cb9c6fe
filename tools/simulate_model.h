#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"
#include "scheduler/schedules/schedule.h"
#include "tools/command.h"
#include "tools/planned_model.h"

namespace stagecoach {

/// `stagecoach simulate --model`: what the command line said.
struct ModelSimulation {
  PlannedModelOptions model;
  std::string schedule, devices, update, trace;
  int micro_batches = 0;
  ScheduleParameters parameters;  ///< those given
};

/// Plans the model, runs one iteration in the executor on virtual time, without data, and prints
/// what it took: the measures and the order of `simulate` (times in ms), lanes and memory.
Result<int> simulate_model(const ModelSimulation& simulation, const CommandContext& context);

}  // namespace stagecoach
