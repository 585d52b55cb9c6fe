#pragma once

#include <memory>

#include "core/status.h"
#include "core/task_pool.h"
#include "hal/device.h"
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
  /// `host_kind` is pinned, registered or pageable; `pool` fills and compares and must outlive the
  /// memory. Takes nothing yet.
  TransferMemory(Device& device, ByteCount ring_bytes, MemoryKind host_kind, uint64_t seed,
                 TaskPool& pool);

  /// Gets the memory and fills it, but for that of simulated devices, unless that has been done.
  /// Errors: the device's; resource exhausted.
  Status open();

  Device& device() const { return device_; }
  ByteCount ring_bytes() const { return ring_bytes_; }
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
  Status run_now(const CopyRequest& request, int64_t deadline_ns);

  Device& device_;
  const ByteCount ring_bytes_;
  const MemoryKind host_kind_;
  const uint64_t seed_;
  TaskPool& pool_;
  bool is_open_ = false;
  std::unique_ptr<Stream> stream_;
  Side up_, down_;
};

}  // namespace stagecoach
