#include "backends/sim/sim_device.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <sys/mman.h>

#include "backends/sim/sim_event.h"
#include "backends/sim/sim_executable.h"
#include "backends/sim/sim_stream.h"

namespace stagecoach {

namespace {

constexpr double kSecondNs = 1e9;

/// Device memory: an address that nothing is at.
class SimDeviceBuffer final : public Buffer {
 public:
  SimDeviceBuffer(SimDevice& owner, ByteCount size, Label label)
      : Buffer(owner, MemoryKind::kDevice, kAddress, size, label), device_(owner) {}
  ~SimDeviceBuffer() override { device_.give_back(size()); }

 private:
  static constexpr uintptr_t kAddress = 4096;
  SimDevice& device_;
};

/// Host memory: address space without memory behind it, however large; touching it ends the
/// program.
class SimHostBuffer final : public Buffer {
 public:
  SimHostBuffer(Device& owner, void* data, ByteCount size, Label label)
      : Buffer(owner, MemoryKind::kHostPinned, reinterpret_cast<uintptr_t>(data), size, label) {}
  ~SimHostBuffer() override { ::munmap(host_data(), static_cast<size_t>(size())); }
};

class SimOps final : public Ops {
 public:
  explicit SimOps(SimDevice& device) : device_(device) {}
  std::string_view provider(OpKind) const override { return "simulated time"; }

 private:
  Status do_run(Stream& stream, const OpCall& call) override {
    return static_cast<SimStream&>(stream).enqueue_kernel(device_.op_time_ns(call));
  }
  SimDevice& device_;
};

DeviceInfo make_info(const SimMachineProfile& profile, int card, int index,
                     ByteCount memory_bytes) {
  const SimCard& one = profile.cards[static_cast<size_t>(card)];
  DeviceInfo info;
  info.id = fmt::format("sim:{}", index);
  info.backend = "sim";
  info.name = fmt::format("simulated {}", one.title);
  info.index = index;
  info.memory_bytes = memory_bytes > 0 ? memory_bytes : one.memory_bytes;
  info.copy_engines = 2;
  info.up_bytes_per_s = info.down_bytes_per_s = one.link_bytes_per_s;
  // As on a card that keeps to the chain; threads that issue as chunks end have no place in virtual
  // time.
  info.bulk_chunks_ahead = 0;
  info.is_real_hardware = false;
  if (!profile.speeds.empty()) info.speed = profile.speeds[static_cast<size_t>(card)];
  return info;
}

}  // namespace

SimDevice::SimDevice(std::shared_ptr<SimMachine> machine, int card, int index,
                     ByteCount memory_bytes)
    : Device(make_info(machine->profile(), card, index, memory_bytes)),
      machine_(std::move(machine)),
      card_(card),
      ops_(std::make_unique<SimOps>(*this)) {
  usage_.total_bytes = info().memory_bytes;
}

SimDevice::~SimDevice() {
  // What is still to happen may name this device.
  while (machine_->time().advance()) {
  }
  drain_retired();
}

int64_t SimDevice::memory_time_ns(double bytes) const {
  const SimCard& card = machine_->profile().cards[static_cast<size_t>(card_)];
  return std::llround(bytes / (card.memory_bytes_per_s * info().speed) * kSecondNs);
}

int64_t SimDevice::op_time_ns(const OpCall& call) const {
  const SimCard& card = machine_->profile().cards[static_cast<size_t>(card_)];
  double bytes = 0;
  for (const TensorView& output : call.outputs) bytes += static_cast<double>(output.memory.size);
  for (const TensorView& input : call.inputs) bytes += static_cast<double>(input.memory.size);
  double arithmetic_ns = op_flop(call) / (card.matmul_flop_per_s * info().speed) * kSecondNs;
  return std::max(std::llround(arithmetic_ns), static_cast<long long>(memory_time_ns(bytes)));
}

void SimDevice::count_kernel(int64_t duration_ns) {
  ++counters_.kernels;
  counters_.compute_busy_ns += duration_ns;
}

void SimDevice::count_copy(ByteCount bytes, bool is_up) {
  ++counters_.copies;
  (is_up ? counters_.bytes_up : counters_.bytes_down) += bytes;
}

Result<std::unique_ptr<Stream>> SimDevice::do_create_stream(const StreamOptions& options) {
  return std::unique_ptr<Stream>(std::make_unique<SimStream>(*this, options));
}

Result<std::unique_ptr<Event>> SimDevice::do_create_event(const EventOptions& options) {
  return std::unique_ptr<Event>(std::make_unique<SimEvent>(*this, *machine_, options));
}

Allocation SimDevice::do_allocate(ByteCount size, Label label) {
  if (size > usage_.total_bytes - usage_.used_bytes) {
    return Allocation{AllocationOutcome::kExhausted, nullptr, {}};
  }
  usage_.used_bytes += size;
  usage_.peak_bytes = std::max(usage_.peak_bytes, usage_.used_bytes);
  return Allocation{
      AllocationOutcome::kOk, BufferHandle(new SimDeviceBuffer(*this, size, label)), {}};
}

Allocation SimDevice::do_allocate_pinned(ByteCount size, Label label) {
  void* data = ::mmap(nullptr, static_cast<size_t>(size), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return Allocation{AllocationOutcome::kExhausted, nullptr, {}};
  return Allocation{
      AllocationOutcome::kOk, BufferHandle(new SimHostBuffer(*this, data, size, label)), {}};
}

Result<BufferHandle> SimDevice::do_register_host(void* data, ByteCount size, Label label) {
  return BufferHandle(new Buffer(*this, MemoryKind::kHostRegistered,
                                 reinterpret_cast<uintptr_t>(data), size, label));
}

Result<std::unique_ptr<Executable>> SimDevice::do_load_executable(const ExecutableImage& image) {
  return load_sim_executable(image);
}

Status SimDevice::do_synchronize() {
  while (machine_->time().advance()) {
  }
  return Status::ok();
}

}  // namespace stagecoach
