#include "backends/hip/hip_kernels.h"

#include "backends/gpu/gpu_empty_table.h"

namespace stagecoach {

std::shared_ptr<GpuKernelTable> make_hip_kernel_table() {
  return make_empty_kernel_table("-DSTAGECOACH_HIP_ARCHS");
}

}  // namespace stagecoach
