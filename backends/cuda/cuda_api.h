#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "backends/cuda/cuda_functions.h"
#include "backends/gpu/gpu_error_map.h"
#include "backends/gpu/gpu_types.h"
#include "hal/copy.h"

namespace stagecoach {

/// CUDA's numbers that the backend passes to the driver; cuda_header_check.cpp compares them.
struct CudaConstants {
  static constexpr int kComputeMajor = 75;
  static constexpr int kComputeMinor = 76;
  static constexpr int kMultiprocessors = 16;
  static constexpr int kWarpSize = 10;
  static constexpr int kSharedBytesOptin = 97;
  static constexpr int kCopyEngines = 40;
  static constexpr int kKernelTimeout = 17;
  static constexpr unsigned kStreamNonBlocking = 1;
  static constexpr unsigned kEventDefault = 0;
  static constexpr unsigned kEventDisableTiming = 2;
  static constexpr unsigned kHostPortable = 1;
  static constexpr int kFunctionMaxSharedBytes = 8;
};

/// The driver table (backends/gpu/gpu_api_contract.md) of CUDA's driver.
class CudaApi {
 public:
  static constexpr const char* kBackendName = "cuda";
  static constexpr bool kIsRealHardware = true;
  static constexpr bool kIsAmd = false;
  // An H200 lets one urgent copy in twenty wait for all chunks that are queued, chained or not;
  // with 16 urgent copies take 0.4 ms at p99 and bulk keeps 97 % (docs/performance.md).
  static constexpr int kBulkChunksAhead = 16;
  static constexpr int kSuccess = GpuErrorCode::kSuccess;
  static constexpr int kNotReady = GpuErrorCode::kNotReady;
  static constexpr int kOutOfMemory = GpuErrorCode::kOutOfMemory;
  static constexpr int kNoBinary = GpuErrorCode::kNoBinary;
  static constexpr int kPeerAlreadyEnabled = GpuErrorCode::kPeerAlreadyEnabled;

  explicit CudaApi(const CudaFunctions& functions) : f_(functions) {}

  static StatusCode map_error(int error) { return map_gpu_error(error); }
  /// "sm_90".
  static std::string arch_name(int major, int minor);
  /// What to do when the driver does not start.
  static std::string start_advice(int error);
  /// Drivers run code of every toolkit of their own major version.
  static bool driver_is_too_old(int driver_version, int toolkit_version) {
    return driver_version / 1000 < toolkit_version / 1000;
  }
  const char* error_name(int error) const;
  const char* error_text(int error) const;

  int init() const { return f_.cuInit(0); }
  int driver_version(int* version) const { return f_.cuDriverGetVersion(version); }
  int device_count(int* count) const { return f_.cuDeviceGetCount(count); }
  int device_get(int ordinal, int* device) const { return f_.cuDeviceGet(device, ordinal); }
  int device_name(char* text, size_t size, int device) const {
    return f_.cuDeviceGetName(text, static_cast<int>(size), device);
  }
  int device_total_bytes(size_t* bytes, int device) const {
    return f_.cuDeviceTotalMem_v2(bytes, device);
  }
  int device_attribute(int* value, GpuAttribute attribute, int device) const;
  int device_pci_address(char* text, size_t size, int device) const {
    return f_.cuDeviceGetPCIBusId(text, static_cast<int>(size), device);
  }
  int device_uuid(GpuUuid& uuid, int device) const {
    return f_.cuDeviceGetUuid_v2(uuid.data(), device);
  }
  int can_access_peer(int* can, int device, int peer) const {
    return f_.cuDeviceCanAccessPeer(can, device, peer);
  }
  int retain_context(int device, GpuContextHandle* context) const {
    return f_.cuDevicePrimaryCtxRetain(context, device);
  }
  int release_context(int device) const { return f_.cuDevicePrimaryCtxRelease_v2(device); }
  int get_current(GpuContextHandle* context) const { return f_.cuCtxGetCurrent(context); }
  int set_current(GpuContextHandle context) const { return f_.cuCtxSetCurrent(context); }
  int enable_peer(GpuContextHandle peer) const { return f_.cuCtxEnablePeerAccess(peer, 0); }
  int memory_info(size_t* free, size_t* total) const { return f_.cuMemGetInfo_v2(free, total); }
  int allocate(GpuAddress* address, size_t size) const;
  int free(GpuAddress address) const { return f_.cuMemFree_v2(address); }
  int allocate_host(void** data, size_t size) const {
    return f_.cuMemHostAlloc(data, size, CudaConstants::kHostPortable);
  }
  int free_host(void* data) const { return f_.cuMemFreeHost(data); }
  int register_host(void* data, size_t size) const {
    return f_.cuMemHostRegister_v2(data, size, CudaConstants::kHostPortable);
  }
  int unregister_host(void* data) const { return f_.cuMemHostUnregister(data); }
  int copy_async(GpuAddress target, GpuAddress source, size_t size, CopyDirection direction,
                 GpuStreamHandle stream) const;
  int copy_peer_async(GpuAddress target, GpuContextHandle target_context, GpuAddress source,
                      GpuContextHandle source_context, size_t size, GpuStreamHandle stream) const {
    return f_.cuMemcpyPeerAsync(target, target_context, source, source_context, size, stream);
  }
  int fill8_async(GpuAddress target, uint8_t value, size_t count, GpuStreamHandle stream) const {
    return f_.cuMemsetD8Async(target, value, count, stream);
  }
  int fill16_async(GpuAddress target, uint16_t value, size_t count, GpuStreamHandle stream) const {
    return f_.cuMemsetD16Async(target, value, count, stream);
  }
  int fill32_async(GpuAddress target, uint32_t value, size_t count, GpuStreamHandle stream) const {
    return f_.cuMemsetD32Async(target, value, count, stream);
  }
  int create_stream(GpuStreamHandle* stream) const {
    return f_.cuStreamCreate(stream, CudaConstants::kStreamNonBlocking);
  }
  int destroy_stream(GpuStreamHandle stream) const { return f_.cuStreamDestroy_v2(stream); }
  int query_stream(GpuStreamHandle stream) const { return f_.cuStreamQuery(stream); }
  int stream_wait_event(GpuStreamHandle stream, GpuEventHandle event) const {
    return f_.cuStreamWaitEvent(stream, event, 0);
  }
  int create_event(GpuEventHandle* event, bool timing) const {
    return f_.cuEventCreate(
        event, timing ? CudaConstants::kEventDefault : CudaConstants::kEventDisableTiming);
  }
  int destroy_event(GpuEventHandle event) const { return f_.cuEventDestroy_v2(event); }
  int record_event(GpuEventHandle event, GpuStreamHandle stream) const {
    return f_.cuEventRecord(event, stream);
  }
  int query_event(GpuEventHandle event) const { return f_.cuEventQuery(event); }
  int synchronize_event(GpuEventHandle event) const { return f_.cuEventSynchronize(event); }
  int elapsed_ms(float* milliseconds, GpuEventHandle start, GpuEventHandle end) const {
    return f_.cuEventElapsedTime(milliseconds, start, end);
  }
  int load_module(GpuModuleHandle* module, const void* image) const {
    return f_.cuModuleLoadData(module, image);
  }
  int unload_module(GpuModuleHandle module) const { return f_.cuModuleUnload(module); }
  int get_function(GpuFunctionHandle* function, GpuModuleHandle module, const char* name) const {
    return f_.cuModuleGetFunction(function, module, name);
  }
  int set_function_shared_bytes(GpuFunctionHandle function, int bytes) const {
    return f_.cuFuncSetAttribute(function, CudaConstants::kFunctionMaxSharedBytes, bytes);
  }
  int launch(GpuFunctionHandle function, const std::array<uint32_t, 3>& grid,
             const std::array<uint32_t, 3>& block, uint32_t shared_bytes, GpuStreamHandle stream,
             void** arguments) const {
    return f_.cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                             shared_bytes, stream, arguments, nullptr);
  }

 private:
  CudaFunctions f_;
};

}  // namespace stagecoach
