#include "backends/cpu/cpu_device.h"

#include <fmt/format.h>

#include "backends/cpu/cpu_event.h"
#include "backends/cpu/cpu_executable.h"
#include "backends/cpu/cpu_stream.h"

namespace stagecoach {

namespace {

constexpr int kCopyEngines = 2;  // one a direction

/// Memory of a device, or of the host where the device pinned it.
class CpuBuffer final : public Buffer {
 public:
  CpuBuffer(CpuDevice& owner, MemoryKind kind, CpuMemory& memory, std::byte* data, ByteCount size,
            Label label)
      : Buffer(owner, kind, reinterpret_cast<uintptr_t>(data), size, label), memory_(memory) {}
  ~CpuBuffer() override { memory_.release(reinterpret_cast<std::byte*>(device_address()), size()); }

 private:
  CpuMemory& memory_;
};

/// The caller's memory, which counts as pinned.
class CpuRegistration final : public Buffer {
 public:
  CpuRegistration(CpuDevice& owner, CpuMemory& pinned, void* data, ByteCount size, Label label)
      : Buffer(owner, MemoryKind::kHostRegistered, reinterpret_cast<uintptr_t>(data), size, label),
        pinned_(pinned) {}
  ~CpuRegistration() override { pinned_.unreserve(size()); }

 private:
  CpuMemory& pinned_;
};

Allocation allocate_from(CpuMemory& memory, CpuDevice& owner, MemoryKind kind, ByteCount size,
                         Label label) {
  std::byte* data = memory.allocate(size);
  if (data == nullptr) return Allocation{AllocationOutcome::kExhausted, nullptr, {}};
  return Allocation{AllocationOutcome::kOk,
                    BufferHandle(new CpuBuffer(owner, kind, memory, data, size, label)),
                    {}};
}

DeviceInfo make_info(int index, const CpuDeviceOptions& options) {
  const CpuPacing& pacing = options.pacing;
  DeviceInfo info;
  info.id = fmt::format("cpu:{}", index);
  info.backend = "cpu";
  info.name = cpu_device_name(pacing);
  info.index = index;
  info.memory_bytes = options.memory_bytes;
  info.copy_engines = kCopyEngines;
  info.up_bytes_per_s = pacing.up_bytes_per_s;
  info.down_bytes_per_s = pacing.down_bytes_per_s;
  // No limit: its engines look at one operation a stream, so what is queued behind costs an urgent
  // copy nothing, and a thread that issues would compete with the threads that copy.
  info.bulk_chunks_ahead = 0;
  info.is_real_hardware = false;
  info.speed = pacing.speed;
  return info;
}

}  // namespace

CpuDevice::CpuDevice(int index, const CpuDeviceOptions& options, std::shared_ptr<TaskPool> pool)
    : Device(make_info(index, options)), state_(options, std::move(pool)) {}

CpuDevice::~CpuDevice() {
  drain_retired();
}

Result<std::unique_ptr<Stream>> CpuDevice::do_create_stream(const StreamOptions& options) {
  return std::unique_ptr<Stream>(std::make_unique<CpuStream>(*this, options));
}

Result<std::unique_ptr<Event>> CpuDevice::do_create_event(const EventOptions& options) {
  return std::unique_ptr<Event>(std::make_unique<CpuEvent>(*this, options));
}

Allocation CpuDevice::do_allocate(ByteCount size, Label label) {
  return allocate_from(state_.memory, *this, MemoryKind::kDevice, size, label);
}

Allocation CpuDevice::do_allocate_pinned(ByteCount size, Label label) {
  return allocate_from(state_.pinned, *this, MemoryKind::kHostPinned, size, label);
}

Result<BufferHandle> CpuDevice::do_register_host(void* data, ByteCount size, Label label) {
  // The host's own threads are the copy engines, so there is nothing to lock in place.
  if (!state_.pinned.reserve(size)) {
    return resource_exhausted(fmt::format("{} bytes are more than may still be pinned", size));
  }
  return BufferHandle(new CpuRegistration(*this, state_.pinned, data, size, label));
}

Result<std::unique_ptr<Executable>> CpuDevice::do_load_executable(const ExecutableImage& image) {
  return load_cpu_executable(image);
}

Status CpuDevice::do_enable_peer(Device&) {
  return Status::ok();  // one address space: every CPU device reaches every other
}

Result<MemoryUsage> CpuDevice::do_memory_usage() {
  return state_.memory.usage();
}

DeviceCounters CpuDevice::do_counters() {
  const CpuCounters& counters = state_.counters;
  return DeviceCounters{counters.kernels,        counters.copies,          counters.bytes_up,
                        counters.bytes_down,     counters.compute_busy_ns, counters.overrun_ns,
                        counters.copy_overrun_ns};
}

Status CpuDevice::do_synchronize() {
  state_.in_flight.wait_for_none();
  std::lock_guard lock(state_.streams_mutex);
  for (CpuStream* stream : state_.streams) STAGECOACH_RETURN_IF_ERROR(stream->worker_failure());
  return Status::ok();
}

}  // namespace stagecoach
