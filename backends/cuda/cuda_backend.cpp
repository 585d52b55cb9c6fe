#include "backends/cuda/cuda_backend.h"

#include <utility>

#include "backends/cuda/cuda_api.h"
#include "backends/cuda/cuda_kernels.h"
#include "backends/cuda/cuda_library.h"
#include "backends/gpu/gpu_backend.h"

namespace stagecoach {

template class GpuBackend<CudaApi>;

std::unique_ptr<Backend> make_cuda_backend(std::string library,
                                           std::shared_ptr<GpuKernelTable> table) {
  auto load = [name = std::move(library)]() -> Result<CudaApi> {
    STAGECOACH_ASSIGN_OR_RETURN(CudaFunctions functions,
                                load_cuda_functions(cuda_library_names(name)));
    return CudaApi(functions);
  };
  auto open_library = [](const GpuLibraryRequest& request) {
    return open_cuda_library(load_cuda_libraries(), request);
  };
  return std::make_unique<GpuBackend<CudaApi>>(std::move(load), std::move(table), open_library);
}

std::unique_ptr<Backend> make_cuda_backend(std::string library) {
  return make_cuda_backend(std::move(library), make_cuda_kernel_table());
}

}  // namespace stagecoach
