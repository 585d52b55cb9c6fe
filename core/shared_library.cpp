#include "core/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace stagecoach {

Result<SharedLibrary> SharedLibrary::open(std::span<const std::string> names) {
  std::string tried;
  for (const std::string& name : names) {
    void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return SharedLibrary(handle, name);
    const char* reason = dlerror();
    tried += fmt::format("{}{} ({})", tried.empty() ? "" : ", ", name,
                         reason == nullptr ? "no reason given" : reason);
  }
  return unavailable(fmt::format("none of these libraries opens: {}", tried));
}

void* SharedLibrary::find(const char* symbol) const {
  return dlsym(handle_, symbol);
}

}  // namespace stagecoach
