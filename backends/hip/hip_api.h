#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "backends/gpu/gpu_error_map.h"
#include "backends/gpu/gpu_types.h"
#include "backends/hip/hip_functions.h"
#include "hal/copy.h"

namespace stagecoach {

/// HIP's numbers that the backend passes to the runtime; hip_header_check.cpp compares them.
struct HipConstants {
  static constexpr int kComputeMajor = 23;
  static constexpr int kComputeMinor = 61;
  static constexpr int kKernelTimeout = 18;
  static constexpr int kMultiprocessors = 63;
  static constexpr int kWarpSize = 87;
  static constexpr int kSharedBytes = 74;
  static constexpr unsigned kStreamNonBlocking = 1;
  static constexpr unsigned kEventDefault = 0;
  static constexpr unsigned kEventDisableTiming = 2;
  static constexpr unsigned kHostPortable = 1;
  static constexpr int kMemcpyDefault = 4;
};

/// The driver table (backends/gpu/gpu_api_contract.md) of HIP's runtime. HIP has no contexts to
/// speak of: the handle of one is the device number plus one.
class HipApi {
 public:
  static constexpr const char* kBackendName = "hip";
  static constexpr bool kIsRealHardware = true;
  static constexpr bool kIsAmd = true;
  static constexpr int kBulkChunksAhead = 16;  // as CUDA's: measured on no AMD card
  static constexpr int kSuccess = GpuErrorCode::kSuccess;
  static constexpr int kNotReady = GpuErrorCode::kNotReady;
  static constexpr int kOutOfMemory = GpuErrorCode::kOutOfMemory;
  static constexpr int kNoBinary = GpuErrorCode::kNoBinary;
  static constexpr int kPeerAlreadyEnabled = GpuErrorCode::kPeerAlreadyEnabled;

  explicit HipApi(const HipFunctions& functions) : f_(functions) {}

  static StatusCode map_error(int error) { return map_gpu_error(error); }
  /// "gfx103x": the runtime tells no stepping but in hipDeviceProp_t.
  static std::string arch_name(int major, int minor);
  static std::string start_advice(int error);
  /// Code objects say themselves what they need.
  static bool driver_is_too_old(int, int) { return false; }
  const char* error_name(int error) const { return f_.hipGetErrorName(error); }
  const char* error_text(int error) const { return f_.hipGetErrorString(error); }

  int init() const { return f_.hipInit(0); }
  int driver_version(int* version) const { return f_.hipDriverGetVersion(version); }
  int device_count(int* count) const { return f_.hipGetDeviceCount(count); }
  int device_get(int ordinal, int* device) const {
    *device = ordinal;
    return kSuccess;
  }
  int device_name(char* text, size_t size, int device) const {
    return f_.hipDeviceGetName(text, static_cast<int>(size), device);
  }
  int device_total_bytes(size_t* bytes, int device) const {
    return f_.hipDeviceTotalMem(bytes, device);
  }
  int device_attribute(int* value, GpuAttribute attribute, int device) const;
  int device_pci_address(char* text, size_t size, int device) const {
    return f_.hipDeviceGetPCIBusId(text, static_cast<int>(size), device);
  }
  int device_uuid(GpuUuid& uuid, int device) const {
    return f_.hipDeviceGetUuid(uuid.data(), device);
  }
  int can_access_peer(int* can, int device, int peer) const {
    return f_.hipDeviceCanAccessPeer(can, device, peer);
  }
  int retain_context(int device, GpuContextHandle* context) const {
    *context = context_of(device);
    return kSuccess;
  }
  int release_context(int) const { return kSuccess; }
  int get_current(GpuContextHandle* context) const {
    int device = 0;
    int error = f_.hipGetDevice(&device);
    *context = context_of(device);
    return error;
  }
  int set_current(GpuContextHandle context) const {
    return context == nullptr ? kSuccess : f_.hipSetDevice(device_of(context));
  }
  int enable_peer(GpuContextHandle peer) const {
    return f_.hipDeviceEnablePeerAccess(device_of(peer), 0);
  }
  int memory_info(size_t* free, size_t* total) const { return f_.hipMemGetInfo(free, total); }
  int allocate(GpuAddress* address, size_t size) const;
  int free(GpuAddress address) const { return f_.hipFree(pointer(address)); }
  int allocate_host(void** data, size_t size) const {
    return f_.hipHostMalloc(data, size, HipConstants::kHostPortable);
  }
  int free_host(void* data) const { return f_.hipHostFree(data); }
  int register_host(void* data, size_t size) const {
    return f_.hipHostRegister(data, size, HipConstants::kHostPortable);
  }
  int unregister_host(void* data) const { return f_.hipHostUnregister(data); }
  int copy_async(GpuAddress target, GpuAddress source, size_t size, CopyDirection,
                 GpuStreamHandle stream) const {
    return f_.hipMemcpyAsync(pointer(target), pointer(source), size, HipConstants::kMemcpyDefault,
                             stream);
  }
  int copy_peer_async(GpuAddress target, GpuContextHandle target_context, GpuAddress source,
                      GpuContextHandle source_context, size_t size, GpuStreamHandle stream) const {
    return f_.hipMemcpyPeerAsync(pointer(target), device_of(target_context), pointer(source),
                                 device_of(source_context), size, stream);
  }
  int fill8_async(GpuAddress target, uint8_t value, size_t count, GpuStreamHandle stream) const {
    return f_.hipMemsetD8Async(pointer(target), value, count, stream);
  }
  int fill16_async(GpuAddress target, uint16_t value, size_t count, GpuStreamHandle stream) const {
    return f_.hipMemsetD16Async(pointer(target), value, count, stream);
  }
  int fill32_async(GpuAddress target, uint32_t value, size_t count, GpuStreamHandle stream) const {
    return f_.hipMemsetD32Async(pointer(target), static_cast<int>(value), count, stream);
  }
  int create_stream(GpuStreamHandle* stream) const {
    return f_.hipStreamCreateWithFlags(stream, HipConstants::kStreamNonBlocking);
  }
  int destroy_stream(GpuStreamHandle stream) const { return f_.hipStreamDestroy(stream); }
  int query_stream(GpuStreamHandle stream) const { return f_.hipStreamQuery(stream); }
  int stream_wait_event(GpuStreamHandle stream, GpuEventHandle event) const {
    return f_.hipStreamWaitEvent(stream, event, 0);
  }
  int create_event(GpuEventHandle* event, bool timing) const {
    return f_.hipEventCreateWithFlags(
        event, timing ? HipConstants::kEventDefault : HipConstants::kEventDisableTiming);
  }
  int destroy_event(GpuEventHandle event) const { return f_.hipEventDestroy(event); }
  int record_event(GpuEventHandle event, GpuStreamHandle stream) const {
    return f_.hipEventRecord(event, stream);
  }
  int query_event(GpuEventHandle event) const { return f_.hipEventQuery(event); }
  int synchronize_event(GpuEventHandle event) const { return f_.hipEventSynchronize(event); }
  int elapsed_ms(float* milliseconds, GpuEventHandle start, GpuEventHandle end) const {
    return f_.hipEventElapsedTime(milliseconds, start, end);
  }
  int load_module(GpuModuleHandle* module, const void* image) const {
    return f_.hipModuleLoadData(module, image);
  }
  int unload_module(GpuModuleHandle module) const { return f_.hipModuleUnload(module); }
  int get_function(GpuFunctionHandle* function, GpuModuleHandle module, const char* name) const {
    return f_.hipModuleGetFunction(function, module, name);
  }
  /// AMD kernels may use all of the shared memory without asking.
  int set_function_shared_bytes(GpuFunctionHandle, int) const { return kSuccess; }
  int launch(GpuFunctionHandle function, const std::array<uint32_t, 3>& grid,
             const std::array<uint32_t, 3>& block, uint32_t shared_bytes, GpuStreamHandle stream,
             void** arguments) const {
    return f_.hipModuleLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1],
                                    block[2], shared_bytes, stream, arguments, nullptr);
  }

 private:
  static void* pointer(GpuAddress address) {
    return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
  }
  static GpuContextHandle context_of(int device) {
    return reinterpret_cast<GpuContextHandle>(static_cast<uintptr_t>(device) + 1);
  }
  static int device_of(GpuContextHandle context) {
    return static_cast<int>(reinterpret_cast<uintptr_t>(context) - 1);
  }

  HipFunctions f_;
};

}  // namespace stagecoach
