#include "backends/hip/hip_backend.h"

#include <utility>

#include "backends/gpu/gpu_backend.h"
#include "backends/hip/hip_api.h"
#include "backends/hip/hip_kernels.h"
#include "backends/hip/hip_library.h"

namespace stagecoach {

template class GpuBackend<HipApi>;

std::unique_ptr<Backend> make_hip_backend(std::string library,
                                          std::shared_ptr<GpuKernelTable> table) {
  auto load = [name = std::move(library)]() -> Result<HipApi> {
    STAGECOACH_ASSIGN_OR_RETURN(HipFunctions functions,
                                load_hip_functions(hip_library_names(name)));
    return HipApi(functions);
  };
  auto open_library = [](const GpuLibraryRequest& request) {
    return open_hip_library(load_rocblas_functions(rocblas_library_names()), request);
  };
  return std::make_unique<GpuBackend<HipApi>>(std::move(load), std::move(table), open_library);
}

std::unique_ptr<Backend> make_hip_backend(std::string library) {
  return make_hip_backend(std::move(library), make_hip_kernel_table());
}

}  // namespace stagecoach
