#pragma once

#include "tools/bandwidth/group_builder.h"

namespace stagecoach {

/// Products of matrices on each device.
void add_compute(GroupBuilder& builder);
/// What page-locked memory costs.
void add_pin(GroupBuilder& builder);

}  // namespace stagecoach
