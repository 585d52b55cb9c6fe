#include "backends/hip/hip_functions.h"

#include <fmt/format.h>

#include "core/shared_library.h"

namespace stagecoach {

std::vector<std::string> hip_library_names(const std::string& override_name) {
  if (!override_name.empty()) return {override_name};
  return {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};
}

Result<HipFunctions> load_hip_functions(std::span<const std::string> names) {
  Result<SharedLibrary> library = SharedLibrary::open(names);
  if (!library.is_ok()) {
    return unavailable(fmt::format(
        "no HIP runtime: {}; install ROCm's HIP runtime, set STAGECOACH_HIP_LIBRARY to its "
        "libamdhip64, or use another device such as cpu:1",
        library.status().message()));
  }
  HipFunctions functions;
  const char* missing = nullptr;
#define STAGECOACH_HIP_FIND(function, type)                              \
  functions.function = reinterpret_cast<type>(library->find(#function)); \
  if (functions.function == nullptr) missing = #function;
#define STAGECOACH_HIP_FIND_INT(function, parameters) \
  STAGECOACH_HIP_FIND(function, int(*) parameters)
  STAGECOACH_HIP_FUNCTIONS(STAGECOACH_HIP_FIND_INT)
  STAGECOACH_HIP_FIND(hipGetErrorName, const char* (*)(int))
  STAGECOACH_HIP_FIND(hipGetErrorString, const char* (*)(int))
#undef STAGECOACH_HIP_FIND_INT
#undef STAGECOACH_HIP_FIND
  if (missing == nullptr) return functions;
  return unavailable(
      fmt::format("the HIP runtime library {} has no function {}; install ROCm 5.2 "
                  "or newer",
                  library->name(), missing));
}

}  // namespace stagecoach
