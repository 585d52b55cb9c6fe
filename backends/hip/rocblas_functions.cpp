#include "backends/hip/rocblas_functions.h"

#include <fmt/format.h>

#include "core/shared_library.h"

namespace stagecoach {

std::vector<std::string> rocblas_library_names() {
  return {"librocblas.so.5", "librocblas.so.4", "librocblas.so.3", "librocblas.so.0",
          "librocblas.so"};
}

Result<RocblasFunctions> load_rocblas_functions(std::span<const std::string> names) {
  STAGECOACH_ASSIGN_OR_RETURN(SharedLibrary library, SharedLibrary::open(names));
  RocblasFunctions functions;
  const char* missing = nullptr;
#define STAGECOACH_ROCBLAS_FIND(function, result, parameters)                           \
  functions.function = reinterpret_cast<result(*) parameters>(library.find(#function)); \
  if (functions.function == nullptr) missing = #function;
  STAGECOACH_ROCBLAS_FUNCTIONS(STAGECOACH_ROCBLAS_FIND)
#undef STAGECOACH_ROCBLAS_FIND
  if (missing == nullptr) return functions;
  return unavailable(fmt::format("{} has no function {}", library.name(), missing));
}

}  // namespace stagecoach
