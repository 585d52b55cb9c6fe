#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "backends/cpu/wake_signal.h"
#include "core/status.h"

namespace stagecoach {

/// One recording of an event: completes once. Recording an event again makes a new one, so that
/// those who wait for the earlier place are not let go by the later.
/// Thread rule: any thread.
class EventRecord {
 public:
  EventRecord() { waiters_.reserve(kExpectedWaiters); }

  bool is_done() const { return done_.load(std::memory_order_acquire); }
  /// How the recording ended; only once done.
  const Status& status() const { return status_; }
  /// When the mark was passed, in nominal time on RealClock; only once done.
  int64_t passed_ns() const { return passed_ns_; }

  /// Ends the recording and wakes all waiters.
  void complete(const Status& status, int64_t passed_ns);
  /// Blocks the calling thread until done.
  void wait();
  /// Has `signal` notified at completion; false when already done. Paired with `remove_waiter`,
  /// after which the signal may be destroyed.
  bool add_waiter(WakeSignal& signal);
  void remove_waiter(WakeSignal& signal);

 private:
  friend class EventRecordRef;
  /// More than this wait for one place only in tests; then waiting allocates once.
  static constexpr size_t kExpectedWaiters = 8;

  std::atomic<int> references_{0};
  std::atomic<bool> done_{false};
  Status status_;
  int64_t passed_ns_ = 0;
  std::mutex mutex_;
  std::vector<WakeSignal*> waiters_;
};

/// Shared owner of a record. Records are recycled by the process, so after warm-up taking one
/// allocates nothing.
class EventRecordRef {
 public:
  EventRecordRef() = default;
  /// A record not yet done.
  static EventRecordRef acquire();

  EventRecordRef(const EventRecordRef& other) : record_(other.record_) {
    if (record_ != nullptr) record_->references_.fetch_add(1, std::memory_order_relaxed);
  }
  EventRecordRef(EventRecordRef&& other) noexcept
      : record_(std::exchange(other.record_, nullptr)) {}
  EventRecordRef& operator=(EventRecordRef other) noexcept {
    std::swap(record_, other.record_);
    return *this;
  }
  ~EventRecordRef() { release(); }

  EventRecord* get() const { return record_; }
  EventRecord* operator->() const { return record_; }

 private:
  void release();
  EventRecord* record_ = nullptr;
};

}  // namespace stagecoach
