#include "testing/stream_stop.h"

#include <chrono>

#include "hal/device.h"

namespace stagecoach {

namespace {

// Upstream stops and tails do not notify those behind them, so waiters look again this often.
constexpr std::chrono::microseconds kPollInterval{200};

}  // namespace

StreamStop::StreamStop(Stream& stream) {
  // A timepoint would do as well, but asking one takes the directory's lock, and outcomes are asked
  // under streams' locks, which the directory takes in the other order.
  Result<std::unique_ptr<Event>> tail = stream.device().create_event();
  Status status = tail.status();
  if (status.is_ok()) status = stream.record(**tail).status();
  if (status.is_ok()) {
    tail_ = std::move(tail).value();
  } else {
    outcome_ = status;
  }
}

std::shared_ptr<StreamStop> StreamStop::failing(Stream& stream, const Status& failure) {
  STAGECOACH_CHECK(!failure.is_ok());
  std::shared_ptr<StreamStop> stop(new StreamStop(stream));
  stop->failure_ = failure;
  return stop;
}

std::shared_ptr<StreamStop> StreamStop::hanging(Stream& stream) {
  return std::shared_ptr<StreamStop>(new StreamStop(stream));
}

std::shared_ptr<StreamStop> StreamStop::behind(Stream& stream,
                                               std::shared_ptr<StreamStop> upstream) {
  std::shared_ptr<StreamStop> stop(new StreamStop(stream));
  stop->upstream_ = std::move(upstream);
  return stop;
}

std::optional<Status> StreamStop::outcome() {
  std::lock_guard lock(mutex_);
  return outcome_locked();
}

std::optional<Status> StreamStop::outcome_locked() {
  if (outcome_) return outcome_;
  if (tail_) {
    Result<bool> passed = tail_->query();
    if (passed.is_ok() && !*passed) return std::nullopt;
    if (!passed.is_ok()) outcome_ = passed.status();  // a failure before this one is the first
    tail_.reset();
  }
  if (!outcome_ && upstream_) outcome_ = upstream_->outcome();
  if (!outcome_ && !failure_.is_ok()) outcome_ = failure_;
  return outcome_;
}

Status StreamStop::wait() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (std::optional<Status> ended = outcome_locked()) return *ended;
    abandoned_.wait_for(lock, kPollInterval);
  }
}

void StreamStop::abandon(const Status& failure) {
  STAGECOACH_CHECK(!failure.is_ok());
  {
    std::lock_guard lock(mutex_);
    if (!outcome_) outcome_ = failure;
    // Events that share this stop may outlive the device; the tail must not.
    tail_.reset();
    upstream_.reset();
  }
  abandoned_.notify_all();
}

}  // namespace stagecoach
