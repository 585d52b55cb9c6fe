#pragma once

#include "backends/gpu/gpu_kernel_table.h"

namespace stagecoach {

/// The kernels compiled into this program; defined in generated files, and only in programs built
/// where the vendor's compiler was found (cmake/gpu_kernels.cmake).
GpuCode cuda_kernel_image();
GpuCode hip_kernel_image();

}  // namespace stagecoach
