#include "backends/hip/hip_api.h"

#include <fmt/format.h>

namespace stagecoach {

std::string HipApi::arch_name(int major, int minor) {
  return fmt::format("gfx{}{}x", major, minor);
}

std::string HipApi::start_advice(int error) {
  if (error == GpuErrorCode::kNoDevice) {
    return "check rocminfo, access to /dev/kfd and HIP_VISIBLE_DEVICES, or use another device such "
           "as cpu:1";
  }
  return "check the driver with rocminfo, or use another device such as cpu:1";
}

int HipApi::device_attribute(int* value, GpuAttribute attribute, int device) const {
  auto ask = [&](int number) { return f_.hipDeviceGetAttribute(value, number, device); };
  switch (attribute) {
    case GpuAttribute::kComputeMajor:
      return ask(HipConstants::kComputeMajor);
    case GpuAttribute::kComputeMinor:
      return ask(HipConstants::kComputeMinor);
    case GpuAttribute::kMultiprocessors:
      return ask(HipConstants::kMultiprocessors);
    case GpuAttribute::kWarpSize:
      return ask(HipConstants::kWarpSize);
    case GpuAttribute::kSharedBytesPerBlock:
      return ask(HipConstants::kSharedBytes);
    case GpuAttribute::kCopyEngines:
      // HIP answers this for NVIDIA only; AMD cards have two copy engines at least.
      *value = 2;
      return kSuccess;
    case GpuAttribute::kHasKernelTimeout:
      return ask(HipConstants::kKernelTimeout);
  }
  return GpuErrorCode::kInvalidValue;
}

int HipApi::allocate(GpuAddress* address, size_t size) const {
  void* data = nullptr;
  int error = f_.hipMalloc(&data, size);
  *address = reinterpret_cast<uintptr_t>(data);
  return error;
}

}  // namespace stagecoach
