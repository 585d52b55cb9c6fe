#pragma once

#include "tools/bandwidth/group_builder.h"

namespace stagecoach {

/// Each direction of each device, by chunk, chunks issued ahead and kind of host memory.
void add_copies(GroupBuilder& builder);
/// Both directions of each device at once.
void add_duplex(GroupBuilder& builder);
/// All devices at once.
void add_together(GroupBuilder& builder);
/// The sets of devices that show what is shared.
void add_contention(GroupBuilder& builder);
/// Urgent copies behind bulk, by method and chunk.
void add_urgent(GroupBuilder& builder);

}  // namespace stagecoach
