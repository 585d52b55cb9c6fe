#include "scheduler/submitter.h"

#include <pthread.h>

namespace stagecoach {

Submitter::Submitter(Executor& executor, std::string name)
    : executor_(executor), name_(std::move(name)), thread_([this] { loop(); }) {}

Submitter::~Submitter() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
}

void Submitter::enqueue(Awaiter* awaiter) {
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
