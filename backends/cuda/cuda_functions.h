#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"

namespace stagecoach {

// The driver functions the CUDA backend calls: symbol, parameters. All return CUresult, an int.
// Declared by hand, with handles as void* and CUdeviceptr as unsigned long long, so that host code
// builds without the SDK; cuda_header_check.cpp compares constants with the real header.
#define STAGECOACH_CUDA_FUNCTIONS(X)                                                              \
  X(cuInit, (unsigned))                                                                           \
  X(cuDriverGetVersion, (int*))                                                                   \
  X(cuGetErrorName, (int, const char**))                                                          \
  X(cuGetErrorString, (int, const char**))                                                        \
  X(cuDeviceGetCount, (int*))                                                                     \
  X(cuDeviceGet, (int*, int))                                                                     \
  X(cuDeviceGetName, (char*, int, int))                                                           \
  X(cuDeviceTotalMem_v2, (size_t*, int))                                                          \
  X(cuDeviceGetAttribute, (int*, int, int))                                                       \
  X(cuDeviceGetPCIBusId, (char*, int, int))                                                       \
  X(cuDeviceGetUuid_v2, (unsigned char*, int))                                                    \
  X(cuDeviceCanAccessPeer, (int*, int, int))                                                      \
  X(cuDevicePrimaryCtxRetain, (void**, int))                                                      \
  X(cuDevicePrimaryCtxRelease_v2, (int))                                                          \
  X(cuCtxGetCurrent, (void**))                                                                    \
  X(cuCtxSetCurrent, (void*))                                                                     \
  X(cuCtxEnablePeerAccess, (void*, unsigned))                                                     \
  X(cuMemGetInfo_v2, (size_t*, size_t*))                                                          \
  X(cuMemAlloc_v2, (unsigned long long*, size_t))                                                 \
  X(cuMemFree_v2, (unsigned long long))                                                           \
  X(cuMemHostAlloc, (void**, size_t, unsigned))                                                   \
  X(cuMemFreeHost, (void*))                                                                       \
  X(cuMemHostRegister_v2, (void*, size_t, unsigned))                                              \
  X(cuMemHostUnregister, (void*))                                                                 \
  X(cuMemcpyHtoDAsync_v2, (unsigned long long, const void*, size_t, void*))                       \
  X(cuMemcpyDtoHAsync_v2, (void*, unsigned long long, size_t, void*))                             \
  X(cuMemcpyDtoDAsync_v2, (unsigned long long, unsigned long long, size_t, void*))                \
  X(cuMemcpyAsync, (unsigned long long, unsigned long long, size_t, void*))                       \
  X(cuMemcpyPeerAsync, (unsigned long long, void*, unsigned long long, void*, size_t, void*))     \
  X(cuMemsetD8Async, (unsigned long long, unsigned char, size_t, void*))                          \
  X(cuMemsetD16Async, (unsigned long long, unsigned short, size_t, void*))                        \
  X(cuMemsetD32Async, (unsigned long long, unsigned, size_t, void*))                              \
  X(cuStreamCreate, (void**, unsigned))                                                           \
  X(cuStreamDestroy_v2, (void*))                                                                  \
  X(cuStreamQuery, (void*))                                                                       \
  X(cuStreamWaitEvent, (void*, void*, unsigned))                                                  \
  X(cuEventCreate, (void**, unsigned))                                                            \
  X(cuEventDestroy_v2, (void*))                                                                   \
  X(cuEventRecord, (void*, void*))                                                                \
  X(cuEventQuery, (void*))                                                                        \
  X(cuEventSynchronize, (void*))                                                                  \
  X(cuEventElapsedTime, (float*, void*, void*))                                                   \
  X(cuModuleLoadData, (void**, const void*))                                                      \
  X(cuModuleUnload, (void*))                                                                      \
  X(cuModuleGetFunction, (void**, void*, const char*))                                            \
  X(cuFuncSetAttribute, (void*, int, int))                                                        \
  X(cuLaunchKernel, (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                     void*, void**, void**))

/// The driver's functions, all found. Plain data.
struct CudaFunctions {
#define STAGECOACH_CUDA_MEMBER(name, parameters) int(*name) parameters = nullptr;
  STAGECOACH_CUDA_FUNCTIONS(STAGECOACH_CUDA_MEMBER)
#undef STAGECOACH_CUDA_MEMBER
};

/// Names under which the driver library is looked for; `override_name` alone when not empty.
std::vector<std::string> cuda_library_names(const std::string& override_name);

/// Opens the first of `names`. The error lists every name tried, or the function that is missing.
Result<CudaFunctions> load_cuda_functions(std::span<const std::string> names);

}  // namespace stagecoach
