#pragma once

#include <condition_variable>
#include <coroutine>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "core/executor.h"
#include "core/status.h"
#include "hal/virtual_time.h"

namespace stagecoach {

/// A device's submit thread: runs pieces of work that only enqueue, so that issuing to one device
/// never delays another and the controller never blocks in a driver call.
/// Thread rule: `run` from the executor's thread.
class Submitter {
 public:
  /// `executor` must outlive the submitter. With `virtual_time` (of the device; else null) there is
  /// no thread: work runs at once and is charged what issuing it costs.
  Submitter(Executor& executor, std::string name, VirtualTime* virtual_time = nullptr);
  ~Submitter();

  /// A piece of work; lives in the awaiting coroutine's frame, so nothing is allocated.
  class Work {
   public:
    virtual ~Work() = default;
    virtual Status execute() = 0;
  };

  class Awaiter {
   public:
    Awaiter(Submitter& submitter, Work& work) : submitter_(submitter), work_(work) {}
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> handle) {
      handle_ = handle;
      submitter_.enqueue(this);
    }
    Status await_resume() { return std::move(status_); }

   private:
    friend class Submitter;
    Submitter& submitter_;
    Work& work_;
    std::coroutine_handle<> handle_;
    Status status_;
  };
  /// Awaitable: executes `work` on the submit thread and resumes on the executor with its status.
  Awaiter run(Work& work) { return Awaiter(*this, work); }

 private:
  void enqueue(Awaiter* awaiter);
  void run_in_virtual_time(Awaiter* awaiter);
  void loop();

  Executor& executor_;
  std::string name_;
  VirtualTime* const virtual_time_;
  int64_t busy_until_ns_ = 0;  ///< of virtual time
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Awaiter*> queue_;
  bool stopping_ = false;
  std::jthread thread_;  // last: joined before the rest is destroyed
};

}  // namespace stagecoach
