#pragma once

#include <limits>
#include <string>
#include <vector>

#include "backends/cpu/pacing.h"
#include "core/bytes.h"
#include "core/status.h"
#include "hal/device_spec.h"

namespace stagecoach {

/// Memory of a CPU device when `memory=` does not say.
inline constexpr ByteCount kCpuDefaultMemoryBytes = kGiB;
/// Most CPU devices one element may ask for.
inline constexpr int kMaxCpuDevices = 64;

/// One CPU device as a device string asks for it.
struct CpuDeviceOptions {
  ByteCount memory_bytes = kCpuDefaultMemoryBytes;
  ByteCount pinned_bytes = std::numeric_limits<ByteCount>::max();  ///< host memory it may pin
  CpuPacing pacing;
};

/// `cpu:N[memory=…,pinned=…,flops=…,speed=…,h2d=…,d2h=…,latency=…]` (docs/cpu_backend.md): one
/// entry a device. Errors are invalid arguments that name the element, the option and what is
/// allowed.
Result<std::vector<CpuDeviceOptions>> parse_cpu_options(const DeviceSpec& spec);

/// For people, the same for equal ones: "CPU device", "CPU device (paced 20 GFLOP/s)".
std::string cpu_device_name(const CpuPacing& pacing);

}  // namespace stagecoach
