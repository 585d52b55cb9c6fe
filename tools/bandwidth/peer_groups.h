#pragma once

#include "tools/bandwidth/group_builder.h"

namespace stagecoach {

/// Copies between the devices of a backend: each direction of each pair, directly (proved first)
/// and through the host, both directions at once, under load, their latency, and with more than two
/// devices from one to all others and from all to one.
void add_peers(GroupBuilder& builder);

}  // namespace stagecoach
