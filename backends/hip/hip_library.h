#pragma once

#include <memory>

#include "backends/gpu/gpu_library.h"
#include "backends/hip/rocblas_functions.h"

namespace stagecoach {

/// AMD's libraries on the current device: rocBLAS for products without a bias; attention is our own
/// kernels'. Atomics are not allowed, so that products repeat bit for bit. Says in the log what
/// serves what, and what is missing. Never null. No AMD card has run it (docs/hip_backend.md).
std::unique_ptr<GpuLibrary> open_hip_library(const Result<RocblasFunctions>& functions,
                                             const GpuLibraryRequest& request);

}  // namespace stagecoach
