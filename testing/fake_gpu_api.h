#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "backends/gpu/gpu_kernel_table.h"
#include "backends/gpu/gpu_library.h"
#include "core/status.h"
#include "hal/backend.h"
#include "hal/copy.h"
#include "testing/fake_gpu_driver.h"

namespace stagecoach {

/// The driver table (backends/gpu/gpu_api_contract.md) over a FakeGpuDriver, which outlives it.
class FakeApi {
 public:
  static constexpr const char* kBackendName = "fake_gpu";
  static constexpr bool kIsRealHardware = false;
  static constexpr bool kIsAmd = false;
  static constexpr int kBulkChunksAhead = 2;  // few, so that small models reach it
  static constexpr int kSuccess = 0;
  static constexpr int kNotReady = FakeGpuError::kNotReady;
  static constexpr int kOutOfMemory = FakeGpuError::kOutOfMemory;
  static constexpr int kNoBinary = FakeGpuError::kNoBinary;
  static constexpr int kPeerAlreadyEnabled = FakeGpuError::kPeerAlreadyEnabled;

  explicit FakeApi(FakeGpuDriver& driver) : driver_(&driver) {}

  static StatusCode map_error(int error);
  static std::string arch_name(int major, int minor);
  static std::string start_advice(int error);
  static bool driver_is_too_old(int driver_version, int toolkit_version) {
    return driver_version / 1000 < toolkit_version / 1000;
  }
  const char* error_name(int error) const;
  const char* error_text(int error) const;

  int init() const;
  int driver_version(int* version) const;
  int device_count(int* count) const;
  int device_get(int ordinal, int* device) const;
  int device_name(char* text, size_t size, int device) const;
  int device_total_bytes(size_t* bytes, int device) const;
  int device_attribute(int* value, GpuAttribute attribute, int device) const;
  int device_pci_address(char* text, size_t size, int device) const;
  int device_uuid(GpuUuid& uuid, int device) const;
  int can_access_peer(int* can, int device, int peer) const;
  int retain_context(int device, GpuContextHandle* context) const;
  int release_context(int device) const;
  int get_current(GpuContextHandle* context) const;
  int set_current(GpuContextHandle context) const;
  int enable_peer(GpuContextHandle peer) const;
  int memory_info(size_t* free, size_t* total) const;
  int allocate(GpuAddress* address, size_t size) const;
  int free(GpuAddress address) const;
  int allocate_host(void** data, size_t size) const;
  int free_host(void* data) const;
  int register_host(void* data, size_t size) const;
  int unregister_host(void* data) const;
  int copy_async(GpuAddress target, GpuAddress source, size_t size, CopyDirection direction,
                 GpuStreamHandle stream) const;
  int copy_peer_async(GpuAddress target, GpuContextHandle target_context, GpuAddress source,
                      GpuContextHandle source_context, size_t size, GpuStreamHandle stream) const;
  int fill8_async(GpuAddress target, uint8_t value, size_t count, GpuStreamHandle stream) const;
  int fill16_async(GpuAddress target, uint16_t value, size_t count, GpuStreamHandle stream) const;
  int fill32_async(GpuAddress target, uint32_t value, size_t count, GpuStreamHandle stream) const;
  int create_stream(GpuStreamHandle* stream) const;
  int destroy_stream(GpuStreamHandle stream) const;
  int query_stream(GpuStreamHandle stream) const;
  int stream_wait_event(GpuStreamHandle stream, GpuEventHandle event) const;
  int create_event(GpuEventHandle* event, bool timing) const;
  int destroy_event(GpuEventHandle event) const;
  int record_event(GpuEventHandle event, GpuStreamHandle stream) const;
  int query_event(GpuEventHandle event) const;
  int synchronize_event(GpuEventHandle event) const;
  int elapsed_ms(float* milliseconds, GpuEventHandle start, GpuEventHandle end) const;
  int load_module(GpuModuleHandle* module, const void* image) const;
  int unload_module(GpuModuleHandle module) const;
  int get_function(GpuFunctionHandle* function, GpuModuleHandle module, const char* name) const;
  int set_function_shared_bytes(GpuFunctionHandle function, int bytes) const;
  int launch(GpuFunctionHandle function, const std::array<uint32_t, 3>& grid,
             const std::array<uint32_t, 3>& block, uint32_t shared_bytes, GpuStreamHandle stream,
             void** arguments) const;

 private:
  int fill_async(FakeGpuFunction function, GpuAddress target, uint32_t value, int value_size,
                 size_t count, GpuStreamHandle stream) const;

  FakeGpuDriver* driver_;
};

/// GpuBackend<FakeApi>: the template of the real GPU backends on `driver`, which outlives it.
std::unique_ptr<Backend> make_fake_gpu_backend(FakeGpuDriver& driver,
                                               std::shared_ptr<GpuKernelTable> table,
                                               GpuLibraryOpener open_library = nullptr);

}  // namespace stagecoach
