#pragma once

#include <memory>

#include "backends/cpu/cpu_device_state.h"
#include "backends/cpu/cpu_math.h"
#include "backends/cpu/cpu_options.h"
#include "hal/device.h"

namespace stagecoach {

/// One mock card: computes for real on host threads, with its own memory, streams and engines.
/// Thread rule: as Device.
class CpuDevice final : public Device {
 public:
  CpuDevice(int index, const CpuDeviceOptions& options, std::shared_ptr<TaskPool> pool);
  ~CpuDevice() override;

  /// For streams and buffers of this backend.
  CpuDeviceState& state() { return state_; }

 private:
  Result<std::unique_ptr<Stream>> do_create_stream(const StreamOptions& options) override;
  Result<std::unique_ptr<Event>> do_create_event(const EventOptions& options) override;
  Allocation do_allocate(ByteCount size, Label label) override;
  Allocation do_allocate_pinned(ByteCount size, Label label) override;
  Result<BufferHandle> do_register_host(void* data, ByteCount size, Label label) override;
  Result<std::unique_ptr<Executable>> do_load_executable(const ExecutableImage& image) override;
  Ops& do_ops() override { return math_; }
  Status do_enable_peer(Device& peer) override;
  Result<MemoryUsage> do_memory_usage() override;
  DeviceCounters do_counters() override;
  Status do_synchronize() override;

  CpuDeviceState state_;
  CpuMath math_;
};

}  // namespace stagecoach
