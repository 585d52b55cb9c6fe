#pragma once

#include "tools/bandwidth/group_builder.h"

namespace stagecoach {

/// Updates of parameters by host threads.
void add_updates(GroupBuilder& builder);
/// Host threads that read, write and copy.
void add_host(GroupBuilder& builder);

}  // namespace stagecoach
