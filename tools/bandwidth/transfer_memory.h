#pragma once

#include <memory>
#include <string>

#include "core/status.h"
#include "core/task_pool.h"
#include "hal/device.h"
#include "memory/node_placement.h"
#include "memory/pageable_memory.h"
#include "tools/bandwidth/measurement.h"

namespace stagecoach {

/// Which way bytes go between host and device.
enum class LinkDirection : uint8_t { kUp, kDown };

/// "up" (host to device), "down".
const char* link_direction_name(LinkDirection direction);

/// Fills `size` bytes (whole words of 4) with pseudo-random ones that cannot be compressed.
void fill_pattern(std::byte* data, ByteCount size, uint64_t seed, TaskPool& pool);

/// Compares `size` bytes with those that were expected.
DataCheck compare_bytes(const std::byte* expected, const std::byte* found, ByteCount size,
                        TaskPool& pool);

/// Memory of one device and of the host that copies of both directions move: for each direction
/// a ring of equally long buffers on both sides. Sources hold pseudo-random bytes that cannot be
/// compressed and of which no eight are alike, so that a byte in a wrong place is noticed too.
/// Thread rule: one thread.
class TransferMemory {
 public:
  /// Where halving ends.
  static constexpr ByteCount kLeastRing = 64 * kKiB;

  /// `host_kind` is pinned, registered or pageable; `pool` fills and compares and must outlive the
  /// memory. `placement`: the NUMA node of the host's side; null: any. Takes nothing yet.
  TransferMemory(Device& device, ByteCount ring_bytes, MemoryKind host_kind, uint64_t seed,
                 TaskPool& pool, std::shared_ptr<NodePlacement> placement = nullptr);

  /// Gets the memory and fills it, but for that of simulated devices, unless that has been done.
  /// Where there is not so much, half of it will do, and half of that, down to kLeastRing. Errors:
  /// the device's; resource exhausted, with what was asked for and what there is.
  Status open();

  Device& device() const { return device_; }
  /// Of each direction and side; once it is open what could be had.
  ByteCount ring_bytes() const { return ring_bytes_; }
  ByteCount wanted_ring_bytes() const { return wanted_ring_bytes_; }
  /// Why there is less than was wanted; empty: all of it is there.
  const std::string& shortage() const { return shortage_; }
  /// Where the host's side is to lie; null: nobody asked.
  const NodePlacement* placement() const { return placement_.get(); }
  MemoryKind host_kind() const { return host_kind_; }
  /// Whether bytes are moved for real, so that there is something to compare.
  bool holds_data() const { return device_.virtual_time() == nullptr; }

  /// The copy of `size` bytes at `offset` of the ring.
  CopyRequest request(LinkDirection direction, ByteCount offset, ByteCount size) const;
  /// Overwrites the first `size` bytes that copies of `direction` write to.
  Status poison(LinkDirection direction, ByteCount size, int64_t deadline_ns);
  /// Compares the first `size` bytes that copies of `direction` have written.
  Result<DataCheck> check(LinkDirection direction, ByteCount size, int64_t deadline_ns);

 private:
  /// One direction's buffers.
  struct Side {
    PageableMemory pages;  ///< behind `host` where it is not pinned
    BufferHandle host, device;
  };

  Status fill_sources();
  Status open_side(Side& side);
  Status open_pinned(Side& side);
  Status open_sides();
  static void close_side(Side& side);
  Status run_now(const CopyRequest& request, int64_t deadline_ns);

  Device& device_;
  const ByteCount wanted_ring_bytes_;
  ByteCount ring_bytes_;
  const MemoryKind host_kind_;
  const uint64_t seed_;
  TaskPool& pool_;
  const std::shared_ptr<NodePlacement> placement_;
  std::string shortage_;
  bool is_open_ = false;
  std::unique_ptr<Stream> stream_;
  Side up_, down_;
};

}  // namespace stagecoach
