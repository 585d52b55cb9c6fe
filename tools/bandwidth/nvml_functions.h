#pragma once

#include <cstddef>

namespace stagecoach {

// The functions of NVIDIA's management library that are asked, declared by hand, with handles as
// void*, so that nothing needs the vendor's header. All return nvmlReturn_t, an int: 0 is success.
// Any but the first three may be missing, or answer "not supported": what it tells is then unknown.
#define STAGECOACH_NVML_FUNCTIONS(X)                                         \
  X(nvmlInit_v2, ())                                                         \
  X(nvmlDeviceGetHandleByUUID, (const char*, void**))                        \
  X(nvmlDeviceGetHandleByPciBusId_v2, (const char*, void**))                 \
  X(nvmlDeviceGetUUID, (void*, char*, unsigned))                             \
  X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, (void*, void**))           \
  X(nvmlDeviceGetCurrPcieLinkGeneration, (void*, unsigned*))                 \
  X(nvmlDeviceGetMaxPcieLinkGeneration, (void*, unsigned*))                  \
  X(nvmlDeviceGetCurrPcieLinkWidth, (void*, unsigned*))                      \
  X(nvmlDeviceGetMaxPcieLinkWidth, (void*, unsigned*))                       \
  X(nvmlDeviceGetPcieReplayCounter, (void*, unsigned*))                      \
  X(nvmlDeviceGetClockInfo, (void*, int, unsigned*))                         \
  X(nvmlDeviceGetMaxClockInfo, (void*, int, unsigned*))                      \
  X(nvmlDeviceGetPowerUsage, (void*, unsigned*))                             \
  X(nvmlDeviceGetEnforcedPowerLimit, (void*, unsigned*))                     \
  X(nvmlDeviceGetTemperature, (void*, int, unsigned*))                       \
  X(nvmlDeviceGetUtilizationRates, (void*, NvmlUtilization*))                \
  X(nvmlDeviceGetCurrentClocksThrottleReasons, (void*, unsigned long long*)) \
  X(nvmlDeviceGetViolationStatus, (void*, int, NvmlViolation*))              \
  X(nvmlDeviceGetEccMode, (void*, int*, int*))                               \
  X(nvmlDeviceGetPersistenceMode, (void*, int*))                             \
  X(nvmlDeviceGetMigMode, (void*, unsigned*, unsigned*))                     \
  X(nvmlDeviceGetBAR1MemoryInfo, (void*, NvmlBar*))                          \
  X(nvmlDeviceGetMemoryInfo, (void*, NvmlMemory*))                           \
  X(nvmlDeviceGetComputeRunningProcesses_v3, (void*, unsigned*, NvmlProcess*))

/// Answers of the library, as it lays them out.
struct NvmlUtilization {
  unsigned gpu, memory;  ///< per cent
};
struct NvmlViolation {
  unsigned long long reference_us, violation_ns;
};
struct NvmlBar {
  unsigned long long total, free, used;
};
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlProcess {
  unsigned id;
  unsigned long long memory_bytes;  ///< all bits set: not told
  unsigned gpu_instance, compute_instance;
};

/// Numbers that it takes and gives.
struct NvmlConstants {
  static constexpr int kSuccess = 0;
  static constexpr int kNotSupported = 3;
  static constexpr int kNotFound = 6;
  static constexpr int kInsufficientSize = 7;
  static constexpr int kDriverNotLoaded = 9;
  static constexpr int kCoreClock = 1;  ///< of the multiprocessors
  static constexpr int kMemoryClock = 2;
  static constexpr int kGpuSensor = 0;
  static constexpr int kPowerPolicy = 0;
  static constexpr int kThermalPolicy = 1;
  static constexpr unsigned long long kNoValue = ~0ULL;
  // Why clocks are below what they could be. Idleness and what the user has set are no fault.
  static constexpr unsigned long long kPowerCap = 0x4;
  static constexpr unsigned long long kHardwareSlowdown = 0x8;
  static constexpr unsigned long long kSoftwareThermal = 0x20;
  static constexpr unsigned long long kHardwareThermal = 0x40;
  static constexpr unsigned long long kPowerBrake = 0x80;
};

}  // namespace stagecoach
