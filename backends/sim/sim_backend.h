#pragma once

#include <memory>
#include <vector>

#include "backends/sim/sim_machine.h"
#include "hal/backend.h"

namespace stagecoach {

/// Devices `sim:NxMODEL` (docs/sim_backend.md): cards of a preset on one machine, in virtual time.
std::unique_ptr<Backend> make_sim_backend();

/// All cards of a machine as devices.
std::vector<std::unique_ptr<Device>> open_sim_devices(const std::shared_ptr<SimMachine>& machine);

}  // namespace stagecoach
