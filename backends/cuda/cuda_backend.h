#pragma once

#include <memory>
#include <string>

#include "backends/gpu/gpu_kernel_table.h"
#include "hal/backend.h"

namespace stagecoach {

/// NVIDIA cards through CUDA's driver library, which is looked for when something is first asked.
/// `library` replaces the usual names (STAGECOACH_CUDA_LIBRARY); see docs/cuda_backend.md.
std::unique_ptr<Backend> make_cuda_backend(std::string library = "");
/// The same with other kernels than those built in.
std::unique_ptr<Backend> make_cuda_backend(std::string library,
                                           std::shared_ptr<GpuKernelTable> table);

}  // namespace stagecoach
