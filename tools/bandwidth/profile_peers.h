#pragma once

#include "scheduler/machine_profile.h"
#include "tools/bandwidth/results.h"

namespace stagecoach {

/// Adds to `profile` what `p2p` measured between its cards: both routes of every pair that was
/// tried. Copies that brought wrong bytes, did not end or are impossible do not work, and the
/// reason says why. Pure.
void add_profile_peers(const BandwidthReport& report, MachineProfile& profile);

}  // namespace stagecoach
