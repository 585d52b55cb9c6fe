#pragma once

#include "hal/executable.h"
#include "hal/timed_kernel.h"

namespace stagecoach {

class SimDevice;

/// The kernels of simulated devices; not found for any other image.
Result<std::unique_ptr<Executable>> load_sim_executable(const ExecutableImage& image);

/// How long the launch lasts on `device`.
int64_t sim_kernel_time_ns(const LaunchRequest& request, const SimDevice& device);

}  // namespace stagecoach
