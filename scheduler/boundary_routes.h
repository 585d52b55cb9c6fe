#pragma once

#include <string>
#include <vector>

#include "scheduler/machine_profile.h"

namespace stagecoach {

/// Which way activations and their gradients go from device to device. The runtime has one: through
/// the host's memory, where they wait for backward anyway. A line each, for people; empty where
/// there is nothing to say.
struct BoundaryRoutes {
  std::string measured;  ///< pairs of which measuring says the same, with the reason
  std::string slower;    ///< pairs of which copies from device to device are right and faster
  std::string unknown;   ///< pairs that nobody measured
};

/// What `profile` says of all ordered pairs of `devices` ("cuda:0"). Pure.
BoundaryRoutes boundary_routes(const MachineProfile& profile,
                               const std::vector<std::string>& devices);

}  // namespace stagecoach
