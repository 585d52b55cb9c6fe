#pragma once

#include <string>

#include "core/status.h"
#include "scheduler/schedules/schedule.h"
#include "tools/command.h"
#include "tools/simulation_output.h"

namespace stagecoach {

/// `stagecoach simulate --layer-times`: what the command line said.
struct LayerSimulation {
  std::string schedule, layer_times, devices, update;
  int micro_batches = 0;
  double tokens = 0;              ///< of a micro-batch; 0: those of the file
  double freed_at_input = 0;      ///< share of activations that a bound stage frees at I
  ScheduleParameters parameters;  ///< those given
};

/// Cuts the layers into stages and simulates the schedule; times are shown in ms. Streamed slots
/// run in the step model with all transfers and updates: roundpipe and single as planned, slidedp
/// with every layer on every device. Schedules that bind stages to devices cut the layers for the
/// least longest stage at its devices' speed, keep weights there and are charged compute and
/// hand-overs.
Result<SimulatedRun> simulate_layers(const LayerSimulation& simulation,
                                     const CommandContext& context);

/// Simulates the order of a bound `plan`, whose stages name layers of the file; all of `simulation`
/// but schedule, update, micro-batches and parameters counts. Streamed orders are refused.
Result<SimulatedRun> simulate_layers_in_order(Plan plan, OrderNotation notation,
                                              const LayerSimulation& simulation,
                                              const CommandContext& context);

}  // namespace stagecoach
