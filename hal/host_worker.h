#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "core/bytes.h"
#include "core/label.h"
#include "core/task_pool.h"
#include "core/trace.h"
#include "hal/host_queue.h"
#include "hal/ring_queue.h"

namespace stagecoach {

/// A host queue whose jobs run one after another on the worker's thread and may spread over its
/// task pool. Thread rule: any thread.
class HostWorker final : public HostQueue {
 public:
  /// `pool` must outlive the worker.
  HostWorker(std::string name, TaskPool& pool);
  ~HostWorker() override;

  Result<Timepoint> submit_after(Timepoint after, Label label, HostWorkCost cost, Job job) override;

  /// Jobs that finish from now on are added to `trace` as slices of (process, track).
  void set_trace(Trace* trace, int process, int track);

  /// Makes jobs that start from now on take at least what they cost at this rate of host memory, as
  /// paced devices do; 0: as fast as they are.
  void set_pace(double bytes_per_ns);

  Result<bool> reached(uint64_t sequence) override;
  Status wait_until_reached(uint64_t sequence) override;
  bool settled(uint64_t sequence) override;
  Status status() const override;
  Timepoint last_submitted() const override;
  void abandon(const Status& status) override;

 private:
  struct Entry {
    uint64_t sequence = 0;
    Timepoint after;
    Label label;
    HostWorkCost cost;
    Job job;
  };
  void work();
  void run_entry(Entry& entry);
  void wait_for_pace(const Entry& entry, int64_t start_ns);
  void trace_entry(const Entry& entry, int64_t start_ns);
  /// Keeps the first failure, drops what is queued and wakes everyone.
  void fail(const Status& status);

  TaskPool& pool_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  RingQueue<Entry> queue_;
  Status failure_;
  bool stopping_ = false;
  uint64_t running_ = 0;  // sequence of the job being run, 0 = none
  uint64_t submitted_ = 0;
  uint64_t completed_ = 0;
  double pace_bytes_per_ns_ = 0;
  Trace* trace_ = nullptr;
  int trace_process_ = 0;
  int trace_track_ = 0;
  std::thread thread_;
};

}  // namespace stagecoach
