#pragma once

#include "tools/bandwidth/group_builder.h"

namespace stagecoach {

/// Copies inside the memory of each device.
void add_local(GroupBuilder& builder);

}  // namespace stagecoach
