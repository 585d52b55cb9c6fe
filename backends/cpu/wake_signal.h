#pragma once

#include <condition_variable>
#include <mutex>

namespace stagecoach {

/// Where one thread waits for whatever may let it go on: a stream's worker, or a host thread that
/// waits for an event. The conditions themselves are atomics; `notify` follows their change.
/// Thread rule: any thread. Locks taken before this one: an event record's or an engine's.
struct WakeSignal {
  std::mutex mutex;
  std::condition_variable changed;

  void notify() {
    // Taking the lock orders this after a waiter's test of its condition, so no wake-up is lost.
    { std::lock_guard lock(mutex); }
    changed.notify_all();
  }
};

}  // namespace stagecoach
