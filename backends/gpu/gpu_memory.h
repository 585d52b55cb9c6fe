#pragma once

#include <algorithm>
#include <mutex>

#include "backends/gpu/gpu_launch_plan.h"
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

/// What a logical device has allocated, counted against its cap. A part is set aside for the
/// scratch memory of ops and counts as used from the start, so that whoever plans with what is free
/// leaves it alone.
/// Thread rule: any thread.
class GpuMemoryAccount {
 public:
  static constexpr ByteCount kScratchShare = 8;

  explicit GpuMemoryAccount(ByteCount limit_bytes)
      : limit_bytes_(limit_bytes),
        set_aside_bytes_(std::min(GpuArch::kMostScratch, limit_bytes / kScratchShare)),
        used_bytes_(set_aside_bytes_),
        peak_bytes_(set_aside_bytes_) {}

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
  /// The same for scratch memory: only what exceeds the part set aside is taken of the rest.
  bool reserve_scratch(ByteCount size) {
    std::lock_guard lock(mutex_);
    ByteCount more = excess(scratch_bytes_ + size) - excess(scratch_bytes_);
    if (more > limit_bytes_ - used_bytes_) return false;
    used_bytes_ += more;
    scratch_bytes_ += size;
    return true;
  }
  void release_scratch(ByteCount size) {
    std::lock_guard lock(mutex_);
    used_bytes_ -= excess(scratch_bytes_) - excess(scratch_bytes_ - size);
    scratch_bytes_ -= size;
  }
  ByteCount set_aside_bytes() const { return set_aside_bytes_; }
  /// What of the part set aside nobody has taken.
  ByteCount unused_scratch_bytes() const {
    std::lock_guard lock(mutex_);
    return std::max(set_aside_bytes_ - scratch_bytes_, ByteCount{0});
  }
  MemoryUsage usage() const {
    std::lock_guard lock(mutex_);
    return MemoryUsage{limit_bytes_, used_bytes_, peak_bytes_};
  }

 private:
  ByteCount excess(ByteCount scratch) const {
    return std::max(scratch - set_aside_bytes_, ByteCount{0});
  }

  const ByteCount limit_bytes_;
  const ByteCount set_aside_bytes_;
  mutable std::mutex mutex_;
  ByteCount used_bytes_;
  ByteCount peak_bytes_;
  ByteCount scratch_bytes_ = 0;
};

}  // namespace stagecoach
