#include "backends/cuda/cudnn_functions.h"

#include <fmt/format.h>

#include "core/shared_library.h"

namespace stagecoach {

std::vector<std::string> cudnn_library_names() {
  // Another major version is another interface.
  return {"libcudnn.so.9"};
}

Result<CudnnFunctions> load_cudnn_functions(std::span<const std::string> names) {
  STAGECOACH_ASSIGN_OR_RETURN(SharedLibrary library, SharedLibrary::open(names));
  CudnnFunctions functions;
  const char* missing = nullptr;
#define STAGECOACH_CUDNN_FIND(function, result, parameters)                             \
  functions.function = reinterpret_cast<result(*) parameters>(library.find(#function)); \
  if (functions.function == nullptr) missing = #function;
  STAGECOACH_CUDNN_FUNCTIONS(STAGECOACH_CUDNN_FIND)
#undef STAGECOACH_CUDNN_FIND
  if (missing == nullptr) return functions;
  return unavailable(fmt::format("{} has no function {}", library.name(), missing));
}

}  // namespace stagecoach
