#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "hal/device.h"
#include "scheduler/layer_profile.h"
#include "scheduler/network.h"

namespace stagecoach {

/// The micro-batch of profiled networks: profiles are of one micro-batch, whatever its rows, so
/// boundaries are one row of all its bytes.
inline constexpr MicroBatchShape kProfiledShape{1, 1};

/// A network whose layers take the times and bytes of `profiles` instead of computing:
/// run_virtually runs it in the executor's own order, with all transfers. A backward's input and
/// weight halves take half its time each. `dtype` is that of compute copies and decides, as in
/// training, whether gradients are summed apart. `devices` are those that will run it; they must
/// outlive it. Errors: invalid argument for devices that compute, and for profiles whose recompute
/// does not take as long as their forward (a layer cannot tell the two apart), that take or yield
/// nothing, whose trained copies are not their gradients, or whose shared copy the named layer does
/// not have.
Result<Network> make_profiled_network(std::string name, const std::vector<LayerProfile>& profiles,
                                      DType dtype, std::span<Device* const> devices);

}  // namespace stagecoach
