#pragma once

#include "hal/executable.h"

namespace stagecoach {

class SimDevice;

/// Name of the image that simulated devices load, and of its one kernel, which takes one int64: how
/// many nanoseconds it lasts on a device of speed 1.
inline constexpr std::string_view kSimKernels = "stagecoach_sim_kernels";
inline constexpr std::string_view kSimBusyKernel = "busy";

/// The kernels of simulated devices; not found for any other image.
Result<std::unique_ptr<Executable>> load_sim_executable(const ExecutableImage& image);

/// How long the launch lasts on `device`.
int64_t sim_kernel_time_ns(const LaunchRequest& request, const SimDevice& device);

}  // namespace stagecoach
