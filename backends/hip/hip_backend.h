#pragma once

#include <memory>
#include <string>

#include "backends/gpu/gpu_kernel_table.h"
#include "hal/backend.h"

namespace stagecoach {

/// AMD cards through HIP's runtime library, which is looked for when something is first asked.
/// `library` replaces the usual names (STAGECOACH_HIP_LIBRARY); see docs/hip_backend.md.
std::unique_ptr<Backend> make_hip_backend(std::string library = "");
/// The same with other kernels than those built in.
std::unique_ptr<Backend> make_hip_backend(std::string library,
                                          std::shared_ptr<GpuKernelTable> table);

}  // namespace stagecoach
