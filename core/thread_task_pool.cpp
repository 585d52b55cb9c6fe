#include "core/thread_task_pool.h"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace stagecoach {

namespace {

/// A job is a shared index counter; idle threads join any job that has indices left.
class ThreadTaskPool final : public TaskPool {
 public:
  ThreadTaskPool(int thread_count, const std::function<void()>& on_start)
      : thread_count_(thread_count) {
    for (int i = 1; i < thread_count; ++i) {
      threads_.emplace_back([this, on_start] {
        if (on_start) on_start();
        work();
      });
    }
  }

  ~ThreadTaskPool() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
  }

  void parallel_for(int64_t count, const std::function<void(int64_t)>& body) override {
    if (count <= 0) return;
    Job job{count, &body};
    std::unique_lock lock(mutex_);
    auto position = jobs_.insert(jobs_.end(), &job);
    wake_.notify_all();
    run_indices(job, lock);
    jobs_.erase(position);
    done_.wait(lock, [&] { return job.helpers == 0; });
  }

  int thread_count() const override { return thread_count_; }

 private:
  struct Job {
    int64_t count;
    const std::function<void(int64_t)>* body;
    int64_t next = 0;
    int helpers = 0;
  };

  /// Takes indices of `job` until none is left; `lock` is held on entry and exit.
  void run_indices(Job& job, std::unique_lock<std::mutex>& lock) {
    while (job.next < job.count) {
      int64_t index = job.next++;
      lock.unlock();
      (*job.body)(index);
      lock.lock();
    }
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      Job* found = nullptr;
      for (Job* job : jobs_) {
        if (job->next < job->count) {
          found = job;
          break;
        }
      }
      if (found != nullptr) {
        ++found->helpers;
        run_indices(*found, lock);
        if (--found->helpers == 0) done_.notify_all();
        continue;
      }
      if (stopping_) return;
      wake_.wait(lock);
    }
  }

  const int thread_count_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::list<Job*> jobs_;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;  // last: joined before the rest is destroyed
};

}  // namespace

std::unique_ptr<TaskPool> create_thread_task_pool(int thread_count,
                                                  const std::function<void()>& on_start) {
  return std::make_unique<ThreadTaskPool>(std::max(1, thread_count), on_start);
}

}  // namespace stagecoach
