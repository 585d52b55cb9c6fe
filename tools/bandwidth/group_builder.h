#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tools/bandwidth/bandwidth_plan.h"
#include "tools/bandwidth/transfer_measurement.h"

namespace stagecoach {

inline constexpr LinkDirection kBothDirections[] = {LinkDirection::kUp, LinkDirection::kDown};

/// The memory that copies of each device move, in the order of the devices.
using TransferMemories = std::vector<std::shared_ptr<TransferMemory>>;

/// What the groups of a plan are built from and into: the devices, the options, and how much memory
/// and how many threads a measurement may have. Builds no measurement itself. Allocates nothing.
/// Thread rule: one thread.
class GroupBuilder {
 public:
  /// All of them must outlive it. `free_bytes`: of the host.
  GroupBuilder(std::span<const MeasuredDevice> devices, const BandwidthOptions& options,
               ByteCount free_bytes, TaskPool& pool)
      : devices_(devices), options_(options), free_bytes_(free_bytes), pool_(pool) {}

  std::span<const MeasuredDevice> devices() const { return devices_; }
  const BandwidthOptions& options() const { return options_; }
  TaskPool& pool() const { return pool_; }
  ByteCount free_bytes() const { return free_bytes_; }
  /// `quick` measures less of everything; whoever asks for one suite gets all of it.
  bool is_full() const { return options_.suite != "quick"; }

  /// What each direction of a device goes round, on either side.
  ByteCount ring_bytes(const Device& device) const;
  /// Such memory of every device; what it pins is added to `group`.
  TransferMemories memories(MemoryKind kind, BandwidthGroup& group) const;
  /// The same on NUMA node `node`; null for devices that are not to be measured there.
  TransferMemories memories_on(int node, MemoryKind kind, BandwidthGroup& group) const;
  /// The nodes that any device's memory is to be measured on; empty: nobody asked.
  std::vector<int> copy_nodes() const;
  TransferFlow flow(const TransferMemories& all, size_t device, LinkDirection direction) const;
  /// Of copies that run at the same time.
  ByteCount common_chunk(const TransferMemories& all) const;
  /// One thread to all of them (`most`: to so many, if there are): every power of two in between in
  /// full runs.
  std::vector<int> thread_counts(int most = 0) const;
  /// Bytes of each of `arrays` that host threads go through: far more than caches hold, at most a
  /// quarter of the free memory together. Mocks are for trying out, and need not wait for it.
  ByteCount host_bytes(int arrays);

  /// An empty group of that name.
  BandwidthGroup start(const std::string& name) const;
  /// Adds a group to the plan, with the ids of its measurements; an empty one is left out.
  void push(BandwidthGroup group);
  /// Says, once, what was left out and why; nothing where that is empty.
  void note(std::string text);
  /// Invalid argument, with the least that would do, where --max-pinned or --max-mem is below what
  /// the groups so far take at least.
  Status check_limits() const;

  BandwidthPlan take() { return std::move(plan_); }

 private:
  std::shared_ptr<TransferMemory> memory_of(size_t device, MemoryKind kind,
                                            std::shared_ptr<NodePlacement> placement,
                                            BandwidthGroup& group) const;

  const std::span<const MeasuredDevice> devices_;
  const BandwidthOptions& options_;
  const ByteCount free_bytes_;
  TaskPool& pool_;
  BandwidthPlan plan_;
  ByteCount least_host_bytes_ = 0;
  std::set<std::string> ids_;  ///< of all measurements of the plan
};

/// The params of a copy.
Json copy_params(const std::string& device, const char* direction, MemoryKind kind, ByteCount size);

}  // namespace stagecoach
