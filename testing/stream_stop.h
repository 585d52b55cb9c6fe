#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "core/status.h"
#include "hal/event.h"
#include "hal/stream.h"

namespace stagecoach {

/// Why a decorated stream forwards nothing any more, and how that ends. One is shared by the
/// stream, by the events recorded on it afterwards and by the streams that wait for one of those,
/// so that a hang or an asynchronous failure spreads as it does on hardware. Thread rule: any
/// thread.
class StreamStop {
 public:
  /// Ends with `failure` once all that `stream` was given before is done: work that failed.
  static std::shared_ptr<StreamStop> failing(Stream& stream, const Status& failure);
  /// Ends only by `abandon`: work that never completes.
  static std::shared_ptr<StreamStop> hanging(Stream& stream);
  /// Ends when `upstream` has ended and all that `stream` was given before is done: a wait.
  static std::shared_ptr<StreamStop> behind(Stream& stream, std::shared_ptr<StreamStop> upstream);

  /// How it ended, never ok; nothing while it has not. Never blocks.
  std::optional<Status> outcome();
  /// Blocks until it has ended and says how.
  Status wait();
  /// Ends it with `failure` unless it has ended.
  void abandon(const Status& failure);

 private:
  explicit StreamStop(Stream& stream);
  std::optional<Status> outcome_locked();

  std::mutex mutex_;
  std::condition_variable abandoned_;
  std::optional<Status> outcome_;
  std::unique_ptr<Event> tail_;  // recorded behind the forwarded work; null once it is passed
  std::shared_ptr<StreamStop> upstream_;
  Status failure_;  // ok for a hang
};

}  // namespace stagecoach
