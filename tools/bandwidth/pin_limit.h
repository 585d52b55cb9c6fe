#pragma once

#include "tools/bandwidth/group_builder.h"

namespace stagecoach {

/// Finds how much a device can have page-locked, of each kind, in a process of its own (see
/// MemorySteps): "limit" in GiB and "pin" in s/GiB. Nothing where the options name no such process.
void add_pin_limits(GroupBuilder& builder);

}  // namespace stagecoach
