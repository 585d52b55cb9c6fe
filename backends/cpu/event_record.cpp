#include "backends/cpu/event_record.h"

#include <algorithm>
#include <memory>

namespace stagecoach {

namespace {

/// Records of the whole process: waits of one device hold records of another, whichever goes first.
struct RecordPool {
  std::mutex mutex;
  std::vector<std::unique_ptr<EventRecord>> all;
  std::vector<EventRecord*> free;
};

RecordPool& record_pool() {
  static RecordPool* pool = new RecordPool;  // outlives every static device
  return *pool;
}

}  // namespace

void EventRecord::complete(const Status& status, int64_t passed_ns) {
  std::lock_guard lock(mutex_);
  status_ = status;
  passed_ns_ = passed_ns;
  done_.store(true, std::memory_order_release);
  // Under the lock, because `remove_waiter` must not return while a signal is being notified.
  for (WakeSignal* waiter : waiters_) waiter->notify();
}

void EventRecord::wait() {
  WakeSignal signal;
  if (!add_waiter(signal)) return;
  {
    std::unique_lock lock(signal.mutex);
    signal.changed.wait(lock, [this] { return is_done(); });
  }
  remove_waiter(signal);
}

bool EventRecord::add_waiter(WakeSignal& signal) {
  std::lock_guard lock(mutex_);
  if (is_done()) return false;
  waiters_.push_back(&signal);
  return true;
}

void EventRecord::remove_waiter(WakeSignal& signal) {
  std::lock_guard lock(mutex_);
  waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &signal));
}

EventRecordRef EventRecordRef::acquire() {
  RecordPool& pool = record_pool();
  std::lock_guard lock(pool.mutex);
  if (pool.free.empty()) {
    pool.all.push_back(std::make_unique<EventRecord>());
    pool.free.reserve(pool.all.size());
    pool.free.push_back(pool.all.back().get());
  }
  EventRecordRef ref;
  ref.record_ = pool.free.back();
  pool.free.pop_back();
  ref.record_->done_.store(false, std::memory_order_relaxed);
  ref.record_->references_.store(1, std::memory_order_relaxed);
  return ref;
}

void EventRecordRef::release() {
  if (record_ == nullptr) return;
  if (record_->references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  record_->status_ = Status::ok();
  RecordPool& pool = record_pool();
  std::lock_guard lock(pool.mutex);
  pool.free.push_back(record_);
}

}  // namespace stagecoach
