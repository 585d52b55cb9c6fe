#pragma once

#include "tools/bandwidth/group_builder.h"

namespace stagecoach {

/// Host threads that do nothing, convert or update, beside copies of no, either or both directions
/// of all devices, beside products of matrices or not; `quick` has one such point and its parts.
void add_overlap(GroupBuilder& builder);

}  // namespace stagecoach
