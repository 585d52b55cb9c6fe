#include "backends/hip/hip_kernels.h"

#if STAGECOACH_HIP_KERNELS
#include "backends/gpu/gpu_kernel_image.h"
#include "backends/gpu/gpu_planned_table.h"
#else
#include "backends/gpu/gpu_empty_table.h"
#endif

namespace stagecoach {

std::shared_ptr<GpuKernelTable> make_hip_kernel_table() {
  constexpr const char* kBuildFlag = "-DSTAGECOACH_HIP_ARCHS";
#if STAGECOACH_HIP_KERNELS
  GpuCode code = hip_kernel_image();
  code.build_flag = kBuildFlag;
  return make_planned_kernel_table(std::move(code));
#else
  return make_empty_kernel_table(kBuildFlag);
#endif
}

}  // namespace stagecoach
