#pragma once

#include <cstdint>

namespace stagecoach {

/// Calls of operator new by any thread of this test program so far.
int64_t allocation_count();

}  // namespace stagecoach
