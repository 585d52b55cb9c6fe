#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "backends/cpu/wake_signal.h"

namespace stagecoach {

/// A position in the order in which copies and kernels were submitted, over all streams of the
/// process. Thread rule: any thread.
uint64_t next_issue_ticket();

/// Something of which a device has one: a copy engine of a direction, or its compute units. Among
/// the operations that are ready (at the head of their stream, waits passed) it serves the one that
/// was submitted first; but a stream whose next operation is ready keeps the engine, as measured on
/// real copy engines: an urgent copy starves until a stream with bulk queued ahead runs dry.
/// Thread rule: any thread.
class IssueOrderEngine {
 public:
  /// A stream's place in the queue of an engine. `granted` becomes true with `signal` notified.
  struct Turn {
    WakeSignal* signal = nullptr;
    uint64_t ticket = 0;
    std::atomic<bool> granted{false};
  };

  IssueOrderEngine() { ready_.reserve(kExpectedStreams); }

  /// Says that the operation `turn.ticket` is ready.
  void announce(Turn& turn);
  /// Gives up an announced turn, granted or not.
  void withdraw(Turn& turn);
  /// Ends a granted turn. `next`, if any (may be `holder` itself), is of the same stream and ready:
  /// it gets the engine as operation `next_ticket`.
  void release(Turn& holder, Turn* next, uint64_t next_ticket);

  /// Nominal time at which the last operation served ends. For the holder of the turn only.
  int64_t free_at_ns = 0;

 private:
  static constexpr size_t kExpectedStreams = 16;  // more only make the list grow once
  void grant_locked();
  void give_locked(Turn& turn);

  std::mutex mutex_;
  std::vector<Turn*> ready_;
  Turn* owner_ = nullptr;
};

}  // namespace stagecoach
