#pragma once

#include <algorithm>
#include <mutex>

#include "core/bytes.h"
#include "hal/device_info.h"

namespace stagecoach {

/// What a card can still give to a run, when its user names no cap: a display needs room to go on,
/// and driver and libraries take some themselves.
inline ByteCount usable_memory_bytes(ByteCount free_bytes, ByteCount total_bytes,
                                     bool drives_display) {
  constexpr ByteCount kForDisplay = 1536 * kMiB;
  constexpr ByteCount kForDriver = 256 * kMiB;
  constexpr ByteCount kLeastShare = 32;  // small cards keep most of what they have
  ByteCount kept = std::min(kForDriver, total_bytes / kLeastShare);
  if (drives_display) kept = std::max(kept, kForDisplay);
  return std::max(free_bytes - kept, ByteCount{0});
}

/// What a logical device has allocated, counted against its cap.
/// Thread rule: any thread.
class GpuMemoryAccount {
 public:
  explicit GpuMemoryAccount(ByteCount limit_bytes) : limit_bytes_(limit_bytes) {}

  /// Takes `size` bytes of the cap; false when so much is not left.
  bool reserve(ByteCount size) {
    std::lock_guard lock(mutex_);
    if (size > limit_bytes_ - used_bytes_) return false;
    used_bytes_ += size;
    return true;
  }
  /// The reserved bytes exist: from now on they count for the peak.
  void commit() {
    std::lock_guard lock(mutex_);
    peak_bytes_ = std::max(peak_bytes_, used_bytes_);
  }
  void release(ByteCount size) {
    std::lock_guard lock(mutex_);
    used_bytes_ -= size;
  }
  MemoryUsage usage() const {
    std::lock_guard lock(mutex_);
    return MemoryUsage{limit_bytes_, used_bytes_, peak_bytes_};
  }

 private:
  const ByteCount limit_bytes_;
  mutable std::mutex mutex_;
  ByteCount used_bytes_ = 0;
  ByteCount peak_bytes_ = 0;
};

}  // namespace stagecoach
