#include "backends/cuda/cuda_api.h"

#include <fmt/format.h>

#include "backends/gpu/gpu_error_remedy.h"

namespace stagecoach {

std::string CudaApi::arch_name(int major, int minor) {
  return fmt::format("sm_{}{}", major, minor);
}

std::string CudaApi::start_advice(int error) {
  constexpr int kStubLibrary = 34;
  constexpr int kDriverMismatch = 803;
  switch (error) {
    case GpuErrorCode::kNoDevice:
      return "check nvidia-smi and CUDA_VISIBLE_DEVICES, or use another device such as cpu:1";
    case kStubLibrary:
      return "this is the toolkit's stub: put the driver's libcuda before it, or set "
             "STAGECOACH_CUDA_LIBRARY";
    case kDriverMismatch:
      return "the driver's library and kernel module differ: restart the machine or reinstall the "
             "driver";
    default:
      break;
  }
  const char* remedy = gpu_error_remedy(error);
  return remedy == nullptr ? "check the driver with nvidia-smi, or use another device such as cpu:1"
                           : remedy;
}

const char* CudaApi::error_name(int error) const {
  const char* name = nullptr;
  return f_.cuGetErrorName(error, &name) == kSuccess ? name : nullptr;
}

const char* CudaApi::error_text(int error) const {
  const char* text = nullptr;
  return f_.cuGetErrorString(error, &text) == kSuccess ? text : nullptr;
}

int CudaApi::device_attribute(int* value, GpuAttribute attribute, int device) const {
  static constexpr int kNumbers[kGpuAttributeCount] = {
      CudaConstants::kComputeMajor,     CudaConstants::kComputeMinor,
      CudaConstants::kMultiprocessors,  CudaConstants::kWarpSize,
      CudaConstants::kSharedBytesOptin, CudaConstants::kCopyEngines,
      CudaConstants::kKernelTimeout,
  };
  return f_.cuDeviceGetAttribute(value, kNumbers[static_cast<size_t>(attribute)], device);
}

int CudaApi::allocate(GpuAddress* address, size_t size) const {
  unsigned long long pointer = 0;
  int error = f_.cuMemAlloc_v2(&pointer, size);
  *address = pointer;
  return error;
}

int CudaApi::copy_async(GpuAddress target, GpuAddress source, size_t size, CopyDirection direction,
                        GpuStreamHandle stream) const {
  auto host = [](GpuAddress address) {
    return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  };
  // Named directions also take pageable memory, which the driver cannot tell from nonsense.
  switch (direction) {
    case CopyDirection::kHostToDevice:
      return f_.cuMemcpyHtoDAsync_v2(target, host(source), size, stream);
    case CopyDirection::kDeviceToHost:
      return f_.cuMemcpyDtoHAsync_v2(host(target), source, size, stream);
    case CopyDirection::kDeviceToDevice:
      return f_.cuMemcpyDtoDAsync_v2(target, source, size, stream);
    case CopyDirection::kHostToHost:
      return f_.cuMemcpyAsync(target, source, size, stream);
  }
  return GpuErrorCode::kInvalidValue;
}

}  // namespace stagecoach
