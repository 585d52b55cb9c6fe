#pragma once

#include "tools/bandwidth/group_builder.h"

namespace stagecoach {

/// Rows and columns of the matrices that measurements multiply: long enough to fill a card; a
/// mock's pace is the same for any.
int64_t product_side(const DeviceInfo& device);

/// Products of matrices on each device.
void add_compute(GroupBuilder& builder);
/// What page-locked memory costs.
void add_pin(GroupBuilder& builder);

}  // namespace stagecoach
