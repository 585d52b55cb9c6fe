#pragma once

#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "core/task.h"

namespace stagecoach {

/// The controller's loop: runs coroutines and posted functions on the one thread that calls `run`.
/// Built on a Boost.Asio io_context, which stays inside executor.cpp.
/// Thread rule: `post` from any thread; everything else from the running thread.
class Executor {
 public:
  Executor();
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs `function` on the loop, after what was posted before it.
  void post(std::function<void()> function);
  /// Resumes `handle` on the loop.
  void post(std::coroutine_handle<> handle);

  /// Runs the loop until `task` is done and returns its status. Spawned tasks that are still
  /// suspended stay suspended and go on in the next call.
  Status run(Task<Status> task);
  /// Makes `run` call `idle` whenever nothing is ready, instead of waiting for other threads: for
  /// simulations, where all happens on this one. `idle` makes something happen; when it cannot, it
  /// returns false and `run` ends with an internal error.
  void set_idle(std::function<bool()> idle) { idle_ = std::move(idle); }

  /// Awaitable: resumes after `delay_ns` of real time.
  class SleepAwaiter {
   public:
    SleepAwaiter(Executor& executor, int64_t delay_ns) : executor_(executor), delay_ns_(delay_ns) {}
    bool await_ready() const noexcept { return delay_ns_ <= 0; }
    void await_suspend(std::coroutine_handle<> handle);
    void await_resume() const noexcept {}

   private:
    Executor& executor_;
    int64_t delay_ns_;
  };
  SleepAwaiter sleep_ns(int64_t delay_ns) { return SleepAwaiter(*this, delay_ns); }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::function<bool()> idle_;
};

/// Runs several tasks at once on one executor and gathers their statuses: the first failure wins.
/// Thread rule: the executor's thread only. All spawned tasks must have ended before destruction,
/// which `join` ensures.
class TaskGroup {
 public:
  explicit TaskGroup(Executor& executor) : executor_(executor) {}
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;
  ~TaskGroup();

  /// Starts `task` on the next turn of the loop. When it fails and `on_failure` is set, that runs
  /// once, for the first failure of the group: the place to wake everyone else.
  void spawn(Task<Status> task);
  void set_on_failure(std::function<void(const Status&)> on_failure) {
    on_failure_ = std::move(on_failure);
  }
  /// Completes when every spawned task has ended; the first failure or ok.
  Task<Status> join();

 private:
  struct Detached;
  Detached run_detached(Task<Status> task);
  void finished(const Status& status);

  Executor& executor_;
  std::function<void(const Status&)> on_failure_;
  Status first_failure_;
  int64_t running_ = 0;
  std::coroutine_handle<> joiner_;
};

/// A condition that becomes true, or failed, once; any number of coroutines may await it.
/// Thread rule: the executor's thread only.
class Latch {
 public:
  explicit Latch(Executor& executor) : executor_(&executor) {}

  bool is_set() const { return set_; }
  /// Wakes all waiters with `status`; later calls change nothing.
  void set(const Status& status = Status::ok());

  struct Awaiter {
    Latch& latch;
    bool await_ready() const noexcept { return latch.set_; }
    void await_suspend(std::coroutine_handle<> handle) { latch.waiters_.push_back(handle); }
    Status await_resume() const { return latch.status_; }
  };
  Awaiter wait() { return Awaiter{*this}; }

 private:
  Executor* executor_;
  bool set_ = false;
  Status status_;
  std::vector<std::coroutine_handle<>> waiters_;
};

/// Wakes coroutines that wait for a condition, so that they look again:
///
///   while (!condition) STAGECOACH_CO_RETURN_IF_ERROR(co_await signal.wait());
///
/// Thread rule: the executor's thread only.
class Signal {
 public:
  explicit Signal(Executor& executor) : executor_(&executor) {}

  /// Wakes all that wait now.
  void notify();
  /// Wakes all, now and later, with `status`; the first failure stays.
  void fail(const Status& status);

  struct Awaiter {
    Signal& signal;
    bool await_ready() const noexcept { return !signal.failure_.is_ok(); }
    void await_suspend(std::coroutine_handle<> handle) { signal.waiters_.push_back(handle); }
    Status await_resume() const { return signal.failure_; }
  };
  Awaiter wait() { return Awaiter{*this}; }

 private:
  Executor* executor_;
  Status failure_;
  std::vector<std::coroutine_handle<>> waiters_;
};

}  // namespace stagecoach
