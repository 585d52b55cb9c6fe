#include "backends/cuda/cuda_kernels.h"

#include "backends/gpu/gpu_empty_table.h"

namespace stagecoach {

std::shared_ptr<GpuKernelTable> make_cuda_kernel_table() {
  return make_empty_kernel_table("-DSTAGECOACH_CUDA_ARCHS");
}

}  // namespace stagecoach
