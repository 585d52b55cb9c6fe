#pragma once

#include <cstdint>
#include <mutex>

#include "core/status.h"
#include "hal/timepoint.h"

namespace stagecoach {

class Device;
class Stream;

/// A mark in a stream, as CUDA and HIP have it; may be recorded again, which moves the mark.
/// Thread rule: one thread at a time, except `query`, which any thread may call.
class Event {
 public:
  explicit Event(Device& device) : device_(device) {}
  virtual ~Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  Device& device() const { return device_; }
  bool is_recorded() const { return !timepoint().is_none(); }
  /// Where it was last recorded; none before the first record.
  Timepoint timepoint() const {
    std::lock_guard lock(mutex_);
    return recorded_;
  }

  /// Whether the mark has been passed. Asking an event never recorded is a failed precondition; a
  /// failed stream's status is returned.
  Result<bool> query() const;
  /// Blocks until the mark has been passed.
  Status synchronize() const;
  /// When the mark was passed, on RealClock, in nanoseconds (backends with their own clock
  /// convert). Only for events created with `timing`, after the mark has been passed.
  Result<int64_t> timestamp_ns() const;

 private:
  friend class Stream;
  virtual Result<bool> do_query() const = 0;
  virtual Status do_synchronize() const = 0;
  virtual Result<int64_t> do_timestamp_ns() const = 0;

  void set_recorded(Timepoint timepoint) {
    std::lock_guard lock(mutex_);
    recorded_ = timepoint;
  }

  Device& device_;
  mutable std::mutex mutex_;
  Timepoint recorded_;
};

/// How to create an event.
struct EventOptions {
  bool timing = false;  ///< timestamps cost a little on real cards
};

}  // namespace stagecoach
