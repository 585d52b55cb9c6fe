#pragma once

#include <memory>

#include "backends/sim/sim_engine.h"
#include "backends/sim/sim_machine.h"
#include "hal/device.h"

namespace stagecoach {

/// A card that takes time and counts memory, but holds and computes nothing. Host memory it "pins"
/// is address space that must not be touched. Thread rule: the one thread of the simulation.
class SimDevice final : public Device {
 public:
  /// `card` counts the cards of `machine`; `memory_bytes` 0: the card's.
  SimDevice(std::shared_ptr<SimMachine> machine, int card, int index, ByteCount memory_bytes);
  ~SimDevice() override;

  SimMachine& machine() const { return *machine_; }
  int card() const { return card_; }
  VirtualTime* virtual_time() override { return &machine_->time(); }

  SimEngine& compute() { return compute_; }
  SimEngine& copies_up() { return copies_up_; }
  SimEngine& copies_down() { return copies_down_; }

  /// How long the card's memory takes to move `bytes`.
  int64_t memory_time_ns(double bytes) const;
  /// How long an operation takes: its arithmetic or its operands, whichever is longer.
  int64_t op_time_ns(const OpCall& call) const;

  void count_kernel(int64_t duration_ns);
  void count_copy(ByteCount bytes, bool is_up);
  void give_back(ByteCount bytes) { usage_.used_bytes -= bytes; }

 private:
  Result<std::unique_ptr<Stream>> do_create_stream(const StreamOptions& options) override;
  Result<std::unique_ptr<Event>> do_create_event(const EventOptions& options) override;
  Allocation do_allocate(ByteCount size, Label label) override;
  Allocation do_allocate_pinned(ByteCount size, Label label) override;
  Result<BufferHandle> do_register_host(void* data, ByteCount size, Label label) override;
  Result<std::unique_ptr<Executable>> do_load_executable(const ExecutableImage& image) override;
  Ops& do_ops() override { return *ops_; }
  Status do_enable_peer(Device&) override { return Status::ok(); }
  Result<MemoryUsage> do_memory_usage() override { return usage_; }
  DeviceCounters do_counters() override { return counters_; }
  Status do_synchronize() override;

  const std::shared_ptr<SimMachine> machine_;
  const int card_;
  SimEngine compute_, copies_up_, copies_down_;
  MemoryUsage usage_;
  DeviceCounters counters_;
  std::unique_ptr<Ops> ops_;
};

}  // namespace stagecoach
