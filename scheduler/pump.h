#pragma once

#include <condition_variable>
#include <coroutine>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "core/executor.h"
#include "core/status.h"
#include "hal/stream.h"
#include "hal/timepoint.h"
#include "hal/virtual_time.h"

namespace stagecoach {

/// Turns timepoints into resumed coroutines: one thread polls what is awaited every 200 us and
/// posts completions to the executor. Also the watchdog: when nothing it watches has moved for the
/// time limit while something is awaited, the awaiters fail, naming what is stuck. Thread rule:
/// `reached`, `watch` and `fail_all` from the executor's thread.
class Pump {
 public:
  /// How often awaited timepoints are polled.
  static constexpr int64_t kPollIntervalNs = 200'000;

  /// `executor` must outlive the pump. `timeout_ns` is the time without progress that counts as a
  /// hang.
  /// With `virtual_time` (of the devices; else null) there is no thread and no watchdog: `poll` is
  /// called after time has moved.
  Pump(Executor& executor, int64_t timeout_ns, VirtualTime* virtual_time = nullptr);
  ~Pump();

  /// Streams whose progress counts; they must stay alive until `unwatch_all`.
  void watch(Stream* stream);
  void unwatch_all();
  void set_timeout_ns(int64_t timeout_ns);

  class Awaiter {
   public:
    Awaiter(Pump& pump, Timepoint timepoint) : pump_(pump), timepoint_(timepoint) {}
    bool await_ready();
    bool await_suspend(std::coroutine_handle<> handle);
    Status await_resume() { return std::move(status_); }

   private:
    friend class Pump;
    Pump& pump_;
    Timepoint timepoint_;
    std::coroutine_handle<> handle_;
    Status status_;
  };
  /// Awaitable: resumes with ok when `timepoint` is reached, or with its timeline's failure.
  Awaiter reached(Timepoint timepoint) { return Awaiter(*this, timepoint); }

  /// Looks once, in virtual time: what has been reached resumes when it would have been noticed.
  void poll();
  /// Whether anything is awaited.
  bool has_waiters();

  /// Wakes everything that is awaited, now and later, with `status`.
  void fail_all(const Status& status);

 private:
  void loop();
  bool poll_once();
  bool streams_moved();
  Status stuck_status();

  void resume(std::coroutine_handle<> handle);

  Executor& executor_;
  VirtualTime* const virtual_time_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Awaiter*> waiters_;
  std::vector<Stream*> streams_;
  std::vector<uint64_t> last_completed_;
  Status failure_;
  int64_t timeout_ns_;
  int64_t last_progress_ns_ = 0;
  bool stopping_ = false;
  std::jthread thread_;  // last: joined before the rest is destroyed
};

}  // namespace stagecoach
