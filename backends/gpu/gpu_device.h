#pragma once

#include <memory>
#include <string>

#include "backends/gpu/gpu_buffer.h"
#include "backends/gpu/gpu_device_core.h"
#include "backends/gpu/gpu_event.h"
#include "backends/gpu/gpu_ops.h"
#include "backends/gpu/gpu_options.h"
#include "backends/gpu/gpu_stream.h"
#include "hal/device.h"

namespace stagecoach {

/// A GPU, or one of several logical devices of it. Bodies are in gpu_device_verbs.h.
/// Thread rule: as Device.
template <typename Api>
class GpuDevice final : public Device {
 public:
  /// Opens what `request` asks for; `info` describes it. The context, the clock, the kernels and
  /// the libraries (opened by `open_library`, which may be empty) are ready afterwards.
  static Result<std::unique_ptr<Device>> open(std::shared_ptr<GpuRuntime<Api>> runtime,
                                              std::shared_ptr<GpuKernelTable> table,
                                              const GpuLibraryOpener& open_library,
                                              const GpuDeviceRequest& request, DeviceInfo info,
                                              const GpuArch& arch);
  ~GpuDevice() override;

 private:
  GpuDevice(std::unique_ptr<GpuContextHold<Api>> context, std::shared_ptr<GpuKernelTable> table,
            DeviceInfo info, const GpuArch& arch);
  /// Makes `info.memory_bytes` what the card can give now, where the user named no cap.
  static Status take_free_memory(const GpuContextHold<Api>& hold, const GpuDeviceRequest& request,
                                 DeviceInfo& info);
  Status prepare();
  /// Opens the libraries and lists what serves each op.
  Status prepare_library(const GpuLibraryOpener& open_library, const GpuDeviceRequest& request);

  Result<std::unique_ptr<Stream>> do_create_stream(const StreamOptions& options) override;
  Result<std::unique_ptr<Event>> do_create_event(const EventOptions& options) override;
  Allocation do_allocate(ByteCount size, Label label) override;
  Allocation do_allocate_pinned(ByteCount size, Label label) override;
  Result<BufferHandle> do_register_host(void* data, ByteCount size, Label label) override;
  Result<std::unique_ptr<Executable>> do_load_executable(const ExecutableImage& image) override;
  Ops& do_ops() override { return ops_; }
  Status do_enable_peer(Device& peer) override;
  Result<MemoryUsage> do_memory_usage() override { return core_.account.usage(); }
  DeviceCounters do_counters() override;
  Status do_synchronize() override;

  BufferHandle make_buffer(typename GpuBuffer<Api>::Release how, uintptr_t address, ByteCount size,
                           const Label& label) {
    return BufferHandle(new GpuBuffer<Api>(*this, core_, how, address, size, label));
  }
  /// The failure behind `error`; one that loses the card reaches every stream.
  Status report(int error, std::string_view function);

  const std::shared_ptr<GpuKernelTable> table_;
  GpuDeviceCore<Api> core_;
  GpuOps<Api> ops_;
};

}  // namespace stagecoach

#include "backends/gpu/gpu_device_verbs.h"
