#pragma once

#include <cstdint>

namespace stagecoach {

/// Time in nanoseconds since an arbitrary, fixed start. Thread rule: callable from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() const = 0;
};

/// The machine's monotonic clock.
class RealClock final : public Clock {
 public:
  int64_t now_ns() const override;
  /// The one instance everything real shares, so that all times compare.
  static RealClock& instance();
};

/// Time that moves only when told to; integer nanoseconds, never backwards.
/// Thread rule: one thread at a time (virtual-time runs are single-threaded).
class VirtualClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_; }
  /// Jumps to `time_ns`, which must not lie in the past.
  void advance_to(int64_t time_ns);

 private:
  int64_t now_ns_ = 0;
};

/// Sleeps the calling thread until RealClock reaches `deadline_ns`; returns at once when it has.
void sleep_until_ns(int64_t deadline_ns);

}  // namespace stagecoach
