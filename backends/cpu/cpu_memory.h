#pragma once

#include <cstdint>
#include <cstdlib>
#include <mutex>

#include "core/bytes.h"
#include "hal/device_info.h"

namespace stagecoach {

/// Fills memory with bytes that read as NaN in every floating-point type, so that what was never
/// written, or is used after its release, spoils the result instead of passing.
void poison_memory(void* data, ByteCount size);

/// Host memory of exactly `size` bytes, aligned for vector loads and poisoned; null when the host
/// has none. Freed with std::free.
std::byte* allocate_aligned(ByteCount size);

/// The memory of one CPU device: its own allocations, counted against an exact limit.
/// Thread rule: any thread.
class CpuMemory {
 public:
  using Allocate = std::byte* (*)(ByteCount size);
  using Deallocate = void (*)(void*);
  /// Tests replace the functions: to look at memory as it is given back, to play a host without
  /// any.
  explicit CpuMemory(ByteCount limit_bytes, Allocate allocate_host = allocate_aligned,
                     Deallocate deallocate = std::free)
      : limit_bytes_(limit_bytes), allocate_host_(allocate_host), deallocate_(deallocate) {}

  /// Null when the limit or the host leaves no such piece.
  std::byte* allocate(ByteCount size);
  void release(std::byte* data, ByteCount size);
  /// Counts memory that is another's; false when the limit leaves no such piece.
  bool reserve(ByteCount size);
  void unreserve(ByteCount size);
  MemoryUsage usage() const;

 private:
  const ByteCount limit_bytes_;
  const Allocate allocate_host_;
  const Deallocate deallocate_;
  mutable std::mutex mutex_;
  ByteCount used_bytes_ = 0;
  ByteCount peak_bytes_ = 0;
};

}  // namespace stagecoach
