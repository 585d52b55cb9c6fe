#pragma once

#include <array>
#include <cstdint>

namespace stagecoach {

// Opaque handles as the drivers give them out. A context of a driver that has none (HIP) stands for
// the device number plus one, so that null always means "none current".
using GpuAddress = uint64_t;
using GpuContextHandle = void*;
using GpuStreamHandle = void*;
using GpuEventHandle = void*;
using GpuModuleHandle = void*;
using GpuFunctionHandle = void*;

/// What a driver tells a card, or an instance of one, by.
using GpuUuid = std::array<unsigned char, 16>;

/// The attributes that the template asks for; each Api translates to its driver's numbers.
enum class GpuAttribute : uint8_t {
  kComputeMajor,
  kComputeMinor,
  kMultiprocessors,
  kWarpSize,
  kSharedBytesPerBlock,  ///< the most a kernel may opt in to
  kCopyEngines,
  kHasKernelTimeout,  ///< not 0: a display is served, and long kernels are ended
};
inline constexpr int kGpuAttributeCount = static_cast<int>(GpuAttribute::kHasKernelTimeout) + 1;

}  // namespace stagecoach
