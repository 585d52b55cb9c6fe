#include "scheduler/pump.h"

#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/clock.h"
#include "core/task_pool.h"
#include "hal/host_worker.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecondNs = 1'000'000'000;

Task<Status> await_timepoint(Pump& pump, Timepoint timepoint) {
  co_return co_await pump.reached(timepoint);
}

Task<Status> await_all(Executor& executor, Pump& pump, const std::vector<Timepoint>& timepoints) {
  TaskGroup group(executor);
  for (Timepoint timepoint : timepoints) group.spawn(await_timepoint(pump, timepoint));
  co_return co_await group.join();
}

struct PumpTest : ::testing::Test {
  std::unique_ptr<TaskPool> pool = TaskPool::create(1);
  HostWorker worker{"worker", *pool};
  Executor executor;

  Timepoint submit(HostWorker::Job job) { return worker.submit("job", {}, std::move(job)).value(); }
};

TEST_F(PumpTest, ResumesWhenReached) {
  Pump pump(executor, 10 * kSecondNs);
  std::atomic<int> done{0};
  std::vector<Timepoint> timepoints;
  for (int i = 0; i < 20; ++i) {
    timepoints.push_back(submit([&](TaskPool&) {
      sleep_until_ns(RealClock::instance().now_ns() + 1'000'000);
      ++done;
      return Status::ok();
    }));
  }
  EXPECT_TRUE(executor.run(await_all(executor, pump, timepoints)).is_ok());
  EXPECT_EQ(done, 20);
}

TEST_F(PumpTest, FailureOfTheTimelineArrives) {
  Pump pump(executor, 10 * kSecondNs);
  Timepoint failing = submit([](TaskPool&) { return data_loss("broken"); });
  Status status = executor.run(await_timepoint(pump, failing));
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
}

TEST_F(PumpTest, NoProgressIsDeclaredAHang) {
  Pump pump(executor, kSecondNs / 10);
  std::atomic<bool> release{false};
  Timepoint stuck = submit([&](TaskPool&) {
    while (!release) sleep_until_ns(RealClock::instance().now_ns() + 1'000'000);
    return Status::ok();
  });
  Status status = executor.run(await_timepoint(pump, stuck));
  release = true;
  EXPECT_TRUE(wait_until_reached(stuck).is_ok());
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(status.message(), HasSubstr("no progress for 0.1 s"));
  // Later waits fail at once: a run that hung is over.
  Timepoint next = submit([](TaskPool&) {
    sleep_until_ns(RealClock::instance().now_ns() + 5'000'000);
    return Status::ok();
  });
  EXPECT_EQ(executor.run(await_timepoint(pump, next)).code(), StatusCode::kDeadlineExceeded);
}

TEST_F(PumpTest, FailAllWakesEveryone) {
  Pump pump(executor, 10 * kSecondNs);
  std::atomic<bool> release{false};
  Timepoint stuck = submit([&](TaskPool&) {
    while (!release) sleep_until_ns(RealClock::instance().now_ns() + 1'000'000);
    return Status::ok();
  });
  executor.post([&] { pump.fail_all(cancelled("stopped")); });
  Status status = executor.run(await_all(executor, pump, {stuck, stuck, stuck}));
  release = true;
  EXPECT_TRUE(wait_until_reached(stuck).is_ok());
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace stagecoach
