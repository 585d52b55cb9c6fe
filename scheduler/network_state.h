#pragma once

#include <vector>

#include "memory/host_state.h"
#include "scheduler/layer_profile.h"
#include "scheduler/network.h"
#include "scheduler/plan.h"

namespace stagecoach {

/// The blocks of `network` as the host keeps them.
std::vector<BlockLayout> state_layouts(const Network& network);

/// What a step of `rounds` (>= 1) on `network` keeps for all of them.
HostStateOptions state_options(const Network& network, int rounds, Residence residence,
                               UpdateMode update, const MomentOptions& moments);

}  // namespace stagecoach
