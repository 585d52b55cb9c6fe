#pragma once

#include <memory>

#include "backends/gpu/gpu_kernel_table.h"

namespace stagecoach {

/// The table of this project's own kernels (backends/gpu/kernels), compiled as `code`.
std::shared_ptr<GpuKernelTable> make_planned_kernel_table(GpuCode code);

}  // namespace stagecoach
