#pragma once

#include <cstdint>
#include <string_view>

namespace stagecoach::emulation {

/// One thread's run of a kernel, given its argument slots.
struct EmulatedKernel {
  void (*run)(const uint64_t* slots);
  int argument_count;
};

/// Null when there is none.
const EmulatedKernel* find_emulated_kernel(std::string_view name);

}  // namespace stagecoach::emulation
