#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"

namespace stagecoach {

// The HIP functions the backend calls: symbol, parameters. All return hipError_t, an int.
// Declared by hand, with handles as void*, so that host code builds without the SDK. None takes
// hipDeviceProp_t, whose layout and getter changed with ROCm 6.
#define STAGECOACH_HIP_FUNCTIONS(X)                                                            \
  X(hipInit, (unsigned))                                                                       \
  X(hipDriverGetVersion, (int*))                                                               \
  X(hipGetDeviceCount, (int*))                                                                 \
  X(hipDeviceGetName, (char*, int, int))                                                       \
  X(hipDeviceTotalMem, (size_t*, int))                                                         \
  X(hipMemGetInfo, (size_t*, size_t*))                                                         \
  X(hipDeviceGetAttribute, (int*, int, int))                                                   \
  X(hipDeviceGetPCIBusId, (char*, int, int))                                                   \
  X(hipDeviceGetUuid, (unsigned char*, int))                                                   \
  X(hipDeviceCanAccessPeer, (int*, int, int))                                                  \
  X(hipGetDevice, (int*))                                                                      \
  X(hipSetDevice, (int))                                                                       \
  X(hipDeviceEnablePeerAccess, (int, unsigned))                                                \
  X(hipMalloc, (void**, size_t))                                                               \
  X(hipFree, (void*))                                                                          \
  X(hipHostMalloc, (void**, size_t, unsigned))                                                 \
  X(hipHostFree, (void*))                                                                      \
  X(hipHostRegister, (void*, size_t, unsigned))                                                \
  X(hipHostUnregister, (void*))                                                                \
  X(hipMemcpyAsync, (void*, const void*, size_t, int, void*))                                  \
  X(hipMemcpyPeerAsync, (void*, int, const void*, int, size_t, void*))                         \
  X(hipMemsetD8Async, (void*, unsigned char, size_t, void*))                                   \
  X(hipMemsetD16Async, (void*, unsigned short, size_t, void*))                                 \
  X(hipMemsetD32Async, (void*, int, size_t, void*))                                            \
  X(hipStreamCreateWithFlags, (void**, unsigned))                                              \
  X(hipStreamDestroy, (void*))                                                                 \
  X(hipStreamQuery, (void*))                                                                   \
  X(hipStreamWaitEvent, (void*, void*, unsigned))                                              \
  X(hipEventCreateWithFlags, (void**, unsigned))                                               \
  X(hipEventDestroy, (void*))                                                                  \
  X(hipEventRecord, (void*, void*))                                                            \
  X(hipEventQuery, (void*))                                                                    \
  X(hipEventSynchronize, (void*))                                                              \
  X(hipEventElapsedTime, (float*, void*, void*))                                               \
  X(hipModuleLoadData, (void**, const void*))                                                  \
  X(hipModuleUnload, (void*))                                                                  \
  X(hipModuleGetFunction, (void**, void*, const char*))                                        \
  X(hipModuleLaunchKernel, (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                            unsigned, void*, void**, void**))

/// The runtime's functions, all found. Plain data.
struct HipFunctions {
#define STAGECOACH_HIP_MEMBER(name, parameters) int(*name) parameters = nullptr;
  STAGECOACH_HIP_FUNCTIONS(STAGECOACH_HIP_MEMBER)
#undef STAGECOACH_HIP_MEMBER
  // Return text, not an error.
  const char* (*hipGetErrorName)(int) = nullptr;
  const char* (*hipGetErrorString)(int) = nullptr;
};

/// Names under which the runtime library is looked for; `override_name` alone when not empty.
/// Versioned names come first: distributions ship the bare one with development files only.
std::vector<std::string> hip_library_names(const std::string& override_name);

/// Opens the first of `names`. The error lists every name tried, or the function that is missing.
Result<HipFunctions> load_hip_functions(std::span<const std::string> names);

}  // namespace stagecoach
