#pragma once

#include <cstdint>
#include <functional>

namespace stagecoach {

/// Calls of operator new by any thread of this test program so far.
int64_t allocation_count();

/// Whether `round`, run again and again, stops allocating: nothing is allocated in the last three
/// quarters of some number of rounds. What grows without end, even by doubling, allocates in every
/// such stretch; a mark that a late thread reaches only once in a while does not fail the test.
bool settles_without_allocating(const std::function<void()>& round);

}  // namespace stagecoach
