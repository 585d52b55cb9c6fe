#include "scheduler/submitter.h"

#include <algorithm>
#include <pthread.h>

namespace stagecoach {

Submitter::Submitter(Executor& executor, std::string name, VirtualTime* virtual_time)
    : executor_(executor), name_(std::move(name)), virtual_time_(virtual_time) {
  if (virtual_time_ == nullptr) thread_ = std::jthread([this] { loop(); });
}

Submitter::~Submitter() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
}

void Submitter::run_in_virtual_time(Awaiter* awaiter) {
  const HostCosts& costs = virtual_time_->costs();
  virtual_time_->begin_submission(std::max(busy_until_ns_, virtual_time_->now_ns() + costs.hop_ns));
  awaiter->status_ = awaiter->work_.execute();
  busy_until_ns_ = virtual_time_->submit_ns();
  virtual_time_->at(busy_until_ns_ + costs.hop_ns, EventOrder{},
                    [this, awaiter] { executor_.post(awaiter->handle_); });
}

void Submitter::enqueue(Awaiter* awaiter) {
  if (virtual_time_ != nullptr) {
    run_in_virtual_time(awaiter);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(awaiter);
  }
  wake_.notify_one();
}

void Submitter::loop() {
  // Linux shows at most 15 characters of a thread's name.
  pthread_setname_np(pthread_self(), ("submit " + name_).substr(0, 15).c_str());
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Awaiter* awaiter = queue_.front();
    queue_.pop_front();
    lock.unlock();
    awaiter->status_ = awaiter->work_.execute();
    executor_.post(awaiter->handle_);
    lock.lock();
  }
}

}  // namespace stagecoach
