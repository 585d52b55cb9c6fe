#include "backends/cuda/cuda_functions.h"

#include <fmt/format.h>

#include "core/shared_library.h"

namespace stagecoach {

std::vector<std::string> cuda_library_names(const std::string& override_name) {
  if (!override_name.empty()) return {override_name};
  return {"libcuda.so.1", "libcuda.so"};
}

Result<CudaFunctions> load_cuda_functions(std::span<const std::string> names) {
  Result<SharedLibrary> library = SharedLibrary::open(names);
  if (!library.is_ok()) {
    return unavailable(fmt::format(
        "no CUDA driver: {}; install NVIDIA's driver, set STAGECOACH_CUDA_LIBRARY to its libcuda, "
        "or use another device such as cpu:1",
        library.status().message()));
  }
  CudaFunctions functions;
  const char* missing = nullptr;
#define STAGECOACH_CUDA_FIND(function, parameters)                                    \
  functions.function = reinterpret_cast<int(*) parameters>(library->find(#function)); \
  if (functions.function == nullptr) missing = #function;
  STAGECOACH_CUDA_FUNCTIONS(STAGECOACH_CUDA_FIND)
#undef STAGECOACH_CUDA_FIND
  if (missing == nullptr) return functions;
  return unavailable(
      fmt::format("the CUDA driver library {} has no function {}; update NVIDIA's "
                  "driver",
                  library->name(), missing));
}

}  // namespace stagecoach
