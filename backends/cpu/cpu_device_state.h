#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/cpu/copy_engine.h"
#include "backends/cpu/cpu_memory.h"
#include "backends/cpu/cpu_options.h"
#include "backends/cpu/pacing.h"
#include "core/task_pool.h"

namespace stagecoach {

class CpuStream;

/// DeviceCounters, counted by several workers at once.
struct CpuCounters {
  std::atomic<int64_t> kernels{0};
  std::atomic<int64_t> copies{0};
  std::atomic<int64_t> bytes_up{0};
  std::atomic<int64_t> bytes_down{0};
  std::atomic<int64_t> compute_busy_ns{0};
  std::atomic<int64_t> overrun_ns{0};
  std::atomic<int64_t> copy_overrun_ns{0};
};

/// Work of a device that is queued or running. Thread rule: any thread.
class CpuInFlight {
 public:
  void add() { count_.fetch_add(1, std::memory_order_relaxed); }
  void finish(int64_t count) {
    if (count_.fetch_sub(count, std::memory_order_acq_rel) == count) none_left_.notify();
  }
  void wait_for_none() {
    std::unique_lock lock(none_left_.mutex);
    none_left_.changed.wait(lock, [this] { return count_.load(std::memory_order_acquire) == 0; });
  }

 private:
  std::atomic<int64_t> count_{0};
  WakeSignal none_left_;
};

/// What the streams of one CPU device share.
struct CpuDeviceState {
  CpuDeviceState(const CpuDeviceOptions& options, std::shared_ptr<TaskPool> task_pool)
      : memory(options.memory_bytes),
        pinned(options.pinned_bytes),
        pacing(options.pacing),
        pool(std::move(task_pool)) {}

  CpuMemory memory;
  CpuMemory pinned;  ///< of the host
  const CpuPacing pacing;
  const std::shared_ptr<TaskPool> pool;
  IssueOrderEngine compute;  ///< used only when flops paces kernels
  IssueOrderEngine up;
  IssueOrderEngine down;
  CpuCounters counters;
  CpuInFlight in_flight;
  std::mutex streams_mutex;
  std::vector<CpuStream*> streams;  ///< those that exist, oldest first
};

}  // namespace stagecoach
