#pragma once

#include <memory>
#include <string>

#include "backends/cuda/cublaslt.h"
#include "backends/cuda/cudnn_attention.h"
#include "backends/gpu/gpu_library.h"

namespace stagecoach {

/// The functions of NVIDIA's libraries, or why there are none.
struct CudaLibraryFunctions {
  Result<CublasLtFunctions> cublaslt;
  Result<CudnnFunctions> cudnn;
};

/// Looks for the libraries under their usual names.
CudaLibraryFunctions load_cuda_libraries();

/// NVIDIA's libraries in the current context: cuBLASLt for products, cuDNN for attention. Says in
/// the log what serves what, and what is missing. Never null.
std::unique_ptr<GpuLibrary> open_cuda_library(const CudaLibraryFunctions& functions,
                                              const GpuLibraryRequest& request);

}  // namespace stagecoach
