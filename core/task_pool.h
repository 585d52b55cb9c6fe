#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace stagecoach {

/// Host threads that share out index ranges. Work is cut into tiles by the caller, never by the
/// pool, so that results do not depend on the number of threads.
/// Thread rule: `parallel_for` may be called from any number of threads at once and from inside
/// itself; the calling thread takes part.
class TaskPool {
 public:
  virtual ~TaskPool() = default;

  /// Calls `body(index)` for every index in [0, count) and returns when all are done.
  /// `body` must not throw.
  virtual void parallel_for(int64_t count, const std::function<void(int64_t)>& body) = 0;

  virtual int thread_count() const = 0;

  /// A pool of `thread_count` threads (>= 1), the caller's included. oneTBB in normal builds;
  /// std::jthread where STAGECOACH_TASK_POOL is "threads", because packaged oneTBB is not
  /// instrumented for ThreadSanitizer.
  static std::unique_ptr<TaskPool> create(int thread_count);
};

/// Threads this process may use: the smallest of affinity, cgroup CPU quota and STAGECOACH_THREADS.
int usable_thread_count();

}  // namespace stagecoach
