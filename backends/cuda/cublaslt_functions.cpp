#include "backends/cuda/cublaslt_functions.h"

#include <fmt/format.h>

#include "core/shared_library.h"

namespace stagecoach {

std::vector<std::string> cublaslt_library_names() {
  return {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
}

Result<CublasLtFunctions> load_cublaslt_functions(std::span<const std::string> names) {
  STAGECOACH_ASSIGN_OR_RETURN(SharedLibrary library, SharedLibrary::open(names));
  CublasLtFunctions functions;
  const char* missing = nullptr;
#define STAGECOACH_CUBLASLT_FIND(function, result, parameters)                          \
  functions.function = reinterpret_cast<result(*) parameters>(library.find(#function)); \
  if (functions.function == nullptr) missing = #function;
  STAGECOACH_CUBLASLT_FUNCTIONS(STAGECOACH_CUBLASLT_FIND)
#undef STAGECOACH_CUBLASLT_FIND
  if (missing == nullptr) return functions;
  return unavailable(fmt::format("{} has no function {}", library.name(), missing));
}

}  // namespace stagecoach
