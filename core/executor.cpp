#include "core/executor.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>

namespace stagecoach {

struct Executor::Impl {
  // One thread runs the loop, any thread posts.
  boost::asio::io_context context{1};
};

Executor::Executor() : impl_(std::make_unique<Impl>()) {}
Executor::~Executor() = default;

void Executor::post(std::function<void()> function) {
  boost::asio::post(impl_->context, std::move(function));
}

void Executor::post(std::coroutine_handle<> handle) {
  boost::asio::post(impl_->context, [handle] { handle.resume(); });
}

void Executor::SleepAwaiter::await_suspend(std::coroutine_handle<> handle) {
  auto timer = std::make_shared<boost::asio::steady_timer>(executor_.impl_->context,
                                                           std::chrono::nanoseconds(delay_ns_));
  timer->async_wait([timer, handle](const boost::system::error_code&) { handle.resume(); });
}

namespace {

/// A coroutine nobody awaits; its frame frees itself.
struct Fire {
  struct promise_type {
    Fire get_return_object() {
      return Fire{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
  std::coroutine_handle<> handle;
};

Fire store_result(Task<Status> task, Status* status, bool* done) {
  *status = co_await task;
  *done = true;
}

}  // namespace

Status Executor::run(Task<Status> task) {
  Status status;
  bool done = false;
  post(store_result(std::move(task), &status, &done).handle);
  auto guard = boost::asio::make_work_guard(impl_->context);
  impl_->context.restart();
  while (!done) {
    if (idle_ == nullptr) {
      impl_->context.run_one();
    } else if (impl_->context.poll_one() == 0 && !idle_()) {
      return internal_error("nothing is left to happen, and the work is not done: a deadlock");
    }
  }
  return status;
}

struct TaskGroup::Detached {
  struct promise_type {
    Detached get_return_object() {
      return Detached{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
  std::coroutine_handle<> handle;
};

TaskGroup::~TaskGroup() {
  STAGECOACH_CHECK(running_ == 0);
}

TaskGroup::Detached TaskGroup::run_detached(Task<Status> task) {
  Status status = co_await task;
  finished(status);
}

void TaskGroup::spawn(Task<Status> task) {
  ++running_;
  executor_.post(run_detached(std::move(task)).handle);
}

void TaskGroup::finished(const Status& status) {
  --running_;
  if (!status.is_ok() && first_failure_.is_ok()) {
    first_failure_ = status;
    if (on_failure_) on_failure_(status);
  }
  if (running_ == 0 && joiner_) executor_.post(std::exchange(joiner_, nullptr));
}

Task<Status> TaskGroup::join() {
  struct JoinAwaiter {
    TaskGroup& group;
    bool await_ready() const noexcept { return group.running_ == 0; }
    void await_suspend(std::coroutine_handle<> handle) { group.joiner_ = handle; }
    void await_resume() const noexcept {}
  };
  co_await JoinAwaiter{*this};
  co_return first_failure_;
}

void Latch::set(const Status& status) {
  if (set_) return;
  set_ = true;
  status_ = status;
  for (std::coroutine_handle<> waiter : std::exchange(waiters_, {})) executor_->post(waiter);
}

void Signal::notify() {
  for (std::coroutine_handle<> waiter : std::exchange(waiters_, {})) executor_->post(waiter);
}

void Signal::fail(const Status& status) {
  if (failure_.is_ok()) failure_ = status;
  notify();
}

}  // namespace stagecoach
