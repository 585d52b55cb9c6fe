#pragma once

#include <mutex>
#include <utility>

#include "backends/gpu/gpu_clock.h"
#include "backends/gpu/gpu_mark_pool.h"
#include "backends/gpu/gpu_wait.h"
#include "hal/device.h"
#include "hal/event.h"

namespace stagecoach {

/// An event of a GPU: points at its latest mark. Thread rule: as Event.
template <typename Api>
class GpuEvent final : public Event {
 public:
  /// `clock` is null for an event without timing.
  GpuEvent(Device& owner, GpuMarkPool<Api>& pool, GpuClock<Api>* clock)
      : Event(owner), pool_(pool), clock_(clock) {}

  GpuMarkPool<Api>& pool() { return pool_; }
  /// The latest mark; empty before the first.
  GpuMarkRef mark() const {
    std::lock_guard lock(mark_mutex_);
    return mark_;
  }
  void set_mark(GpuMarkRef mark) {
    // The old mark is let go after the lock, when `mark` goes.
    std::lock_guard lock(mark_mutex_);
    std::swap(mark_, mark);
  }

 private:
  // No site here: streams ask too, and name the operation.
  Result<bool> do_query() const override { return mark()->has_passed(); }
  Status do_synchronize() const override {
    GpuMarkRef latest = mark();
    return wait_for_mark(*latest.get());
  }
  Result<int64_t> do_timestamp_ns() const override {
    Result<int64_t> time_ns = timestamp();
    if (time_ns.is_ok()) return time_ns;
    return time_ns.status().with_site(FailureSite{device().id(), "", "event timestamp", "", 0});
  }
  Result<int64_t> timestamp() const {
    if (clock_ == nullptr) {
      return failed_precondition("the event was created without timing; set EventOptions::timing");
    }
    GpuMarkRef latest = mark();
    STAGECOACH_ASSIGN_OR_RETURN(bool passed, latest->has_passed());
    if (!passed) {
      return failed_precondition("the event has not been passed yet; synchronize first");
    }
    auto* native = static_cast<GpuEventMark<Api>*>(latest.get());
    STAGECOACH_ASSIGN_OR_RETURN(int64_t time_ns, clock_->real_ns(native->handle()));
    return latest->cell()->monotonic(latest->sequence(), time_ns);
  }

  GpuMarkPool<Api>& pool_;
  GpuClock<Api>* const clock_;
  mutable std::mutex mark_mutex_;
  GpuMarkRef mark_;
};

}  // namespace stagecoach
