#pragma once

#include <coroutine>
#include <cstdint>
#include <vector>

#include "core/executor.h"
#include "core/status.h"

namespace stagecoach {

/// Lets a few of many coroutines go at a time: those with the least deadline of the ones that wait.
/// Thread rule: the executor's thread only.
class UpdateTurns {
 public:
  UpdateTurns(Executor& executor, int limit) : executor_(&executor), limit_(limit) {}

  struct Awaiter {
    UpdateTurns& turns;
    int64_t deadline;
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> handle) { return turns.enter(deadline, handle); }
    Status await_resume() const { return turns.failure_; }
  };
  /// Awaitable: resumes when it is this one's turn. `leave` ends the turn.
  Awaiter turn(int64_t deadline) { return Awaiter{*this, deadline}; }
  void leave();
  /// Ends all waits, now and later.
  void fail(const Status& status);

 private:
  struct Waiting {
    int64_t deadline = 0;
    std::coroutine_handle<> handle;
  };
  /// Whether the coroutine has to wait.
  bool enter(int64_t deadline, std::coroutine_handle<> handle);

  Executor* executor_;
  int limit_;
  int taken_ = 0;
  Status failure_;
  std::vector<Waiting> waiting_;  ///< by deadline, the least last; equal ones in order of arrival
};

}  // namespace stagecoach
