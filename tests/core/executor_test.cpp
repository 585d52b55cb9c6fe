#include "core/executor.h"

#include <atomic>
#include <gtest/gtest.h>
#include <string>
#include <thread>

namespace stagecoach {
namespace {

Task<Status> ok_task() {
  co_return Status::ok();
}
Task<Status> failing_task(std::string message) {
  co_return internal_error(message);
}

Task<Status> append_task(std::vector<int>* order, int value) {
  order->push_back(value);
  co_return Status::ok();
}

Task<Status> wait_for(Latch* latch) {
  co_return co_await latch->wait();
}

TEST(Executor, RunsATaskAndReturnsItsStatus) {
  Executor executor;
  EXPECT_TRUE(executor.run(ok_task()).is_ok());
  EXPECT_EQ(executor.run(failing_task("first")).message(), "first");
  EXPECT_TRUE(executor.run(ok_task()).is_ok());  // runs again after a failure
}

TEST(Executor, PostedFunctionsKeepTheirOrder) {
  Executor executor;
  std::vector<int> order;
  for (int i = 0; i < 10; ++i) executor.post([&order, i] { order.push_back(i); });
  EXPECT_TRUE(executor.run(append_task(&order, 10)).is_ok());
  std::vector<int> expected;
  for (int i = 0; i <= 10; ++i) expected.push_back(i);
  EXPECT_EQ(order, expected);
}

TEST(Executor, AwaitedTasksNestDeeply) {
  struct Nest {
    static Task<Status> go(int depth) {
      if (depth == 0) co_return internal_error("bottom");
      STAGECOACH_CO_RETURN_IF_ERROR(co_await go(depth - 1));
      co_return Status::ok();
    }
  };
  Executor executor;
  EXPECT_EQ(executor.run(Nest::go(500)).message(), "bottom");
}

TEST(Executor, PostsFromManyThreadsRunOnTheLoop) {
  Executor executor;
  Latch all(executor);
  constexpr int kThreads = 4;
  constexpr int kPosts = 500;
  int count = 0;  // touched by the loop's thread only: ThreadSanitizer proves it
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < kPosts; ++j) {
        executor.post([&] {
          if (++count == kThreads * kPosts) all.set();
        });
      }
    });
  }
  EXPECT_TRUE(executor.run(wait_for(&all)).is_ok());
  EXPECT_EQ(count, kThreads * kPosts);
}

Task<Status> sleep_task(Executor* executor, int64_t delay_ns) {
  co_await executor->sleep_ns(delay_ns);
  co_return Status::ok();
}

TEST(Executor, SleepsAtLeastTheDelay) {
  Executor executor;
  int64_t start = RealClock::instance().now_ns();
  EXPECT_TRUE(executor.run(sleep_task(&executor, 2'000'000)).is_ok());
  EXPECT_GE(RealClock::instance().now_ns() - start, 2'000'000);
  EXPECT_TRUE(executor.run(sleep_task(&executor, 0)).is_ok());
  EXPECT_TRUE(executor.run(sleep_task(&executor, -1)).is_ok());
}

Task<Status> spawn_three(Executor* executor, std::vector<int>* order) {
  TaskGroup group(*executor);
  for (int i = 0; i < 3; ++i) group.spawn(append_task(order, i));
  co_return co_await group.join();
}

TEST(TaskGroup, RunsAllInTheOrderOfSpawning) {
  Executor executor;
  std::vector<int> order;
  EXPECT_TRUE(executor.run(spawn_three(&executor, &order)).is_ok());
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
}

Task<Status> join_empty(Executor* executor) {
  TaskGroup group(*executor);
  co_return co_await group.join();
}

TEST(TaskGroup, JoiningNothingReturnsAtOnce) {
  Executor executor;
  EXPECT_TRUE(executor.run(join_empty(&executor)).is_ok());
}

Task<Status> fail_while_others_wait(Executor* executor, int* calls) {
  TaskGroup group(*executor);
  Latch never(*executor);
  group.set_on_failure([&, calls](const Status& status) {
    ++*calls;
    never.set(status);
  });
  group.spawn(wait_for(&never));
  group.spawn(failing_task("first"));
  group.spawn(failing_task("second"));
  group.spawn(wait_for(&never));
  co_return co_await group.join();
}

TEST(TaskGroup, FirstFailureWakesTheOthersAndWins) {
  Executor executor;
  int calls = 0;
  EXPECT_EQ(executor.run(fail_while_others_wait(&executor, &calls)).message(), "first");
  EXPECT_EQ(calls, 1);
}

Task<Status> set_after_sleep(Executor* executor, Latch* latch, Status status) {
  co_await executor->sleep_ns(1000);
  latch->set(status);
  latch->set(internal_error("too late"));
  co_return Status::ok();
}

Task<Status> latch_story(Executor* executor, Status status, std::vector<Status>* seen) {
  Latch latch(*executor);
  TaskGroup group(*executor);
  auto waiter = [](Latch* shared, std::vector<Status>* out) -> Task<Status> {
    out->push_back(co_await shared->wait());
    co_return Status::ok();
  };
  group.spawn(waiter(&latch, seen));
  group.spawn(waiter(&latch, seen));
  group.spawn(set_after_sleep(executor, &latch, status));
  STAGECOACH_CO_RETURN_IF_ERROR(co_await group.join());
  seen->push_back(co_await latch.wait());  // already set: does not suspend
  EXPECT_TRUE(latch.is_set());
  co_return Status::ok();
}

TEST(Latch, WakesAllWaitersWithTheFirstStatus) {
  Executor executor;
  std::vector<Status> seen;
  EXPECT_TRUE(executor.run(latch_story(&executor, Status::ok(), &seen)).is_ok());
  ASSERT_EQ(seen.size(), 3u);
  for (const Status& status : seen) EXPECT_TRUE(status.is_ok());
}

TEST(Latch, FailureReachesEveryWaiter) {
  Executor executor;
  std::vector<Status> seen;
  EXPECT_TRUE(executor.run(latch_story(&executor, cancelled("stop"), &seen)).is_ok());
  ASSERT_EQ(seen.size(), 3u);
  for (const Status& status : seen) EXPECT_EQ(status.message(), "stop");
}

Task<Status> many_spawned(Executor* executor, int count, std::atomic<int>* done) {
  TaskGroup group(*executor);
  auto hop = [](Executor* loop, std::atomic<int>* counter) -> Task<Status> {
    Latch latch(*loop);
    loop->post([&latch] { latch.set(); });
    STAGECOACH_CO_RETURN_IF_ERROR(co_await latch.wait());
    counter->fetch_add(1);
    co_return Status::ok();
  };
  for (int i = 0; i < count; ++i) group.spawn(hop(executor, done));
  co_return co_await group.join();
}

TEST(TaskGroup, ThousandsOfTasksEnd) {
  Executor executor;
  std::atomic<int> done{0};
  EXPECT_TRUE(executor.run(many_spawned(&executor, 5000, &done)).is_ok());
  EXPECT_EQ(done.load(), 5000);
}

}  // namespace
}  // namespace stagecoach
