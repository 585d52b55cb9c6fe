#include "backends/register_backends.h"

#include "backends/cpu/cpu_backend.h"
#include "core/settings.h"
#if STAGECOACH_CUDA
#include "backends/cuda/cuda_backend.h"
#endif
#if STAGECOACH_HIP
#include "backends/hip/hip_backend.h"
#endif

namespace stagecoach {

BackendRegistry built_in_backends() {
  BackendRegistry registry;
  registry.add(make_cpu_backend());
  // A setting that cannot be read is reported by whoever reads the settings to run something.
  Result<Settings> read = read_settings();
  [[maybe_unused]] const Settings settings = read.is_ok() ? read.value() : Settings();
#if STAGECOACH_CUDA
  registry.add(make_cuda_backend(settings.cuda_library));
#endif
#if STAGECOACH_HIP
  registry.add(make_hip_backend(settings.hip_library));
#endif
  return registry;
}

}  // namespace stagecoach
