#pragma once

#include <memory>

#include "backends/gpu/gpu_kernel_table.h"

namespace stagecoach {

/// The kernels built into this program for CUDA; without any code where no device compiler was
/// found.
std::shared_ptr<GpuKernelTable> make_cuda_kernel_table();

}  // namespace stagecoach
