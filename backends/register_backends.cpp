#include "backends/register_backends.h"

#include "backends/cpu/cpu_backend.h"

namespace stagecoach {

BackendRegistry built_in_backends() {
  BackendRegistry registry;
  registry.add(make_cpu_backend());
  return registry;
}

}  // namespace stagecoach
