#pragma once

#include <string_view>

namespace stagecoach {

/// Name of the image that simulated devices load, and of its one kernel, which takes one int64: how
/// many nanoseconds it lasts on a device of speed 1. Devices that compute have neither: loading it
/// is not found.
inline constexpr std::string_view kTimedKernels = "stagecoach_sim_kernels";
inline constexpr std::string_view kTimedKernel = "busy";

}  // namespace stagecoach
