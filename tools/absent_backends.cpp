#include "tools/absent_backends.h"

#include <fmt/format.h>
#include <memory>
#include <string_view>

namespace stagecoach {

std::vector<AbsentBackend> absent_backends(const BackendRegistry& backends) {
  std::vector<AbsentBackend> absent;
  for (const std::unique_ptr<Backend>& backend : backends.backends()) {
    Status status = backend->availability();
    if (!status.is_ok()) absent.push_back({std::string(backend->name()), status.message()});
  }
  for (const char* name : {"cuda", "hip"}) {
    if (backends.find(name) != nullptr) continue;
    const char* flag = std::string_view(name) == "cuda" ? "STAGECOACH_CUDA" : "STAGECOACH_HIP";
    absent.push_back({name, fmt::format("not built in: configure with -D{}=ON", flag)});
  }
  return absent;
}

}  // namespace stagecoach
