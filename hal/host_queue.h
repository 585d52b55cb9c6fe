#pragma once

#include <functional>

#include "core/bytes.h"
#include "core/label.h"
#include "core/task_pool.h"
#include "hal/timeline.h"

namespace stagecoach {

/// What a piece of host work costs, so that it can be scheduled, traced and simulated.
struct HostWorkCost {
  ByteCount bytes_touched = 0;
  double flop = 0;
};

/// An ordered queue of host work (optimizer, accumulation, conversion) with a name: threads that do
/// it, or a simulation that only charges what it costs.
/// Thread rule: any thread; simulated queues: the one thread of the simulation.
class HostQueue : public Timeline {
 public:
  using Job = std::function<Status(TaskPool&)>;
  /// Queues `job`. A job that fails makes the queue fail: jobs behind it are dropped.
  Result<Timepoint> submit(Label label, HostWorkCost cost, Job job) {
    return submit_after(Timepoint{}, label, cost, std::move(job));
  }
  /// As `submit`, but the job starts only when `after`, of any timeline, is reached; a failure
  /// there becomes this queue's failure.
  virtual Result<Timepoint> submit_after(Timepoint after, Label label, HostWorkCost cost,
                                         Job job) = 0;
  virtual Timepoint last_submitted() const = 0;
  /// Makes `status` the queue's failure unless it has one; queued jobs are dropped.
  virtual void abandon(const Status& status) = 0;

 protected:
  using Timeline::Timeline;
};

}  // namespace stagecoach
