#include "scheduler/pump.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <pthread.h>

#include "core/clock.h"
#include "hal/device.h"
#include "hal/timeline.h"

namespace stagecoach {

Pump::Pump(Executor& executor, int64_t timeout_ns, VirtualTime* virtual_time)
    : executor_(executor), virtual_time_(virtual_time), timeout_ns_(timeout_ns) {
  if (virtual_time_ == nullptr) thread_ = std::jthread([this] { loop(); });
}

Pump::~Pump() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
}

void Pump::watch(Stream* stream) {
  std::lock_guard lock(mutex_);
  streams_.push_back(stream);
  last_completed_.push_back(0);
}

void Pump::unwatch_all() {
  std::lock_guard lock(mutex_);
  streams_.clear();
  last_completed_.clear();
}

void Pump::set_timeout_ns(int64_t timeout_ns) {
  std::lock_guard lock(mutex_);
  timeout_ns_ = timeout_ns;
}

bool Pump::Awaiter::await_ready() {
  Result<bool> done = stagecoach::reached(timepoint_);
  status_ = done.status();
  return !done.is_ok() || *done;
}

bool Pump::Awaiter::await_suspend(std::coroutine_handle<> handle) {
  handle_ = handle;
  std::lock_guard lock(pump_.mutex_);
  if (!pump_.failure_.is_ok()) {
    status_ = pump_.failure_;
    return false;
  }
  if (pump_.waiters_.empty()) pump_.last_progress_ns_ = RealClock::instance().now_ns();
  pump_.waiters_.push_back(this);
  pump_.wake_.notify_one();
  return true;
}

void Pump::fail_all(const Status& status) {
  std::lock_guard lock(mutex_);
  failure_ = status;
  for (Awaiter* waiter : waiters_) {
    waiter->status_ = status;
    resume(waiter->handle_);
  }
  waiters_.clear();
}

void Pump::poll() {
  if (!virtual_time_->take_completion()) return;
  std::lock_guard lock(mutex_);
  poll_once();
}

bool Pump::has_waiters() {
  std::lock_guard lock(mutex_);
  return !waiters_.empty();
}

void Pump::resume(std::coroutine_handle<> handle) {
  if (virtual_time_ == nullptr) {
    executor_.post(handle);
    return;
  }
  const HostCosts& costs = virtual_time_->costs();
  virtual_time_->at(virtual_time_->now_ns() + costs.completion_ns + costs.hop_ns, EventOrder{},
                    [this, handle] { executor_.post(handle); });
}

bool Pump::streams_moved() {
  bool moved = false;
  for (size_t index = 0; index < streams_.size(); ++index) {
    uint64_t completed = streams_[index]->completed_sequence();
    if (completed != last_completed_[index]) moved = true;
    last_completed_[index] = completed;
  }
  return moved;
}

bool Pump::poll_once() {
  bool progressed = false;
  for (size_t index = 0; index < waiters_.size();) {
    Awaiter* waiter = waiters_[index];
    Result<bool> done = stagecoach::reached(waiter->timepoint_);
    if (done.is_ok() && !*done) {
      ++index;
      continue;
    }
    waiter->status_ = done.status();
    waiters_.erase(waiters_.begin() + static_cast<std::ptrdiff_t>(index));
    resume(waiter->handle_);
    progressed = true;
  }
  return progressed;
}

Status Pump::stuck_status() {
  // A stream that waits for another is a victim; the culprit is the one stuck in an operation. An
  // operation that ended after the last mark of its stream looks stuck as well, if a wait follows
  // it: of several, the one that most streams wait for is what holds the others up.
  std::vector<Stream::Pending> oldest;
  for (Stream* stream : streams_) oldest.push_back(stream->oldest_pending());
  Stream* culprit = nullptr;
  Stream::Pending at;
  int64_t most = 0;
  for (size_t index = 0; index < streams_.size(); ++index) {
    const Stream::Pending& candidate = oldest[index];
    if (candidate.sequence == 0) continue;
    uint64_t timeline = streams_[index]->id();
    int64_t victims = std::count_if(oldest.begin(), oldest.end(), [&](const auto& other) {
      return other.verb == "wait" && other.awaited.timeline == timeline &&
             other.awaited.sequence >= candidate.sequence;
    });
    if (candidate.verb == "wait") victims = -1;
    if (culprit != nullptr && victims <= most) continue;
    culprit = streams_[index];
    at = candidate;
    most = victims;
  }
  // Where all wait, it is what the last of a chain waits for: a stream that has nothing left to do
  // and whose end is not told.
  for (size_t hop = 0; hop < streams_.size() && at.verb == "wait"; ++hop) {
    auto awaited = std::find_if(streams_.begin(), streams_.end(), [&](Stream* stream) {
      return stream->id() == at.awaited.timeline;
    });
    if (awaited == streams_.end()) break;
    culprit = *awaited;
    const Stream::Pending& next = oldest[static_cast<size_t>(awaited - streams_.begin())];
    if (next.sequence == 0) {
      at.verb = "record";
      at.sequence = at.awaited.sequence;
    } else {
      at = next;
    }
  }
  std::string limit =
      fmt::format("no progress for {:.1f} s", static_cast<double>(timeout_ns_) * 1e-9);
  if (culprit == nullptr) return deadline_exceeded(limit + "; host work does not end");
  FailureSite site{culprit->device().id(), culprit->name(), std::string(at.verb),
                   std::string(at.label.view()), at.sequence};
  return Status(StatusCode::kDeadlineExceeded, limit + "; an operation does not end", site);
}

void Pump::loop() {
  pthread_setname_np(pthread_self(), "pump");
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !waiters_.empty(); });
    if (stopping_) return;
    bool progressed = poll_once();
    progressed = streams_moved() || progressed;
    int64_t now_ns = RealClock::instance().now_ns();
    if (progressed) last_progress_ns_ = now_ns;
    if (!waiters_.empty() && now_ns - last_progress_ns_ > timeout_ns_) {
      failure_ = stuck_status();
      for (Awaiter* waiter : waiters_) {
        waiter->status_ = failure_;
        resume(waiter->handle_);
      }
      waiters_.clear();
      continue;
    }
    if (!waiters_.empty()) wake_.wait_for(lock, std::chrono::nanoseconds(kPollIntervalNs));
  }
}

}  // namespace stagecoach
