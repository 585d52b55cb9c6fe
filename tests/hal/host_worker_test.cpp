#include "hal/host_worker.h"

#include <atomic>
#include <future>
#include <gtest/gtest.h>

namespace stagecoach {
namespace {

class HostWorkerTest : public testing::Test {
 protected:
  /// A job that runs until `release` is called, and says when it has begun.
  HostWorker::Job gate() {
    return [this](TaskPool&) {
      begun_.set_value();
      released_.get_future().wait();
      return Status::ok();
    };
  }
  void wait_until_begun() { begun_.get_future().wait(); }
  void release() { released_.set_value(); }
  static HostWorker::Job nothing() {
    return [](TaskPool&) { return Status::ok(); };
  }

  std::unique_ptr<TaskPool> pool_ = TaskPool::create(2);
  std::promise<void> begun_;
  std::promise<void> released_;
};

TEST_F(HostWorkerTest, RunsJobsInOrder) {
  HostWorker worker("optimizer", *pool_);
  std::vector<int> order;
  Timepoint last;
  for (int i = 0; i < 100; ++i) {
    auto submitted = worker.submit("job", {}, [&order, i](TaskPool&) {
      order.push_back(i);
      return Status::ok();
    });
    ASSERT_TRUE(submitted.is_ok());
    EXPECT_EQ(submitted->sequence, static_cast<uint64_t>(i + 1));
    last = submitted.value();
  }
  ASSERT_TRUE(wait_until_reached(last).is_ok());
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_EQ(worker.last_submitted(), last);
}

TEST_F(HostWorkerTest, ReachedOnlyWhenDone) {
  HostWorker worker("optimizer", *pool_);
  auto job = worker.submit("gate", {}, gate());
  ASSERT_TRUE(job.is_ok());
  wait_until_begun();
  auto done = reached(job.value());
  ASSERT_TRUE(done.is_ok());
  EXPECT_FALSE(done.value());
  EXPECT_FALSE(settled(job.value()));
  release();
  ASSERT_TRUE(wait_until_reached(job.value()).is_ok());
  EXPECT_TRUE(reached(job.value()).value());
  EXPECT_TRUE(settled(job.value()));
}

TEST_F(HostWorkerTest, FailureIsKeptAndNamesItsSite) {
  HostWorker worker("optimizer", *pool_);
  auto first = worker.submit("fine", {}, nothing());
  auto gated = worker.submit("gate", {}, gate());
  auto bad = worker.submit("update block 3", {},
                           [](TaskPool&) { return data_loss("gradient is not finite"); });
  std::atomic<bool> ran{false};
  auto behind = worker.submit("behind", {}, [&](TaskPool&) {
    ran = true;
    return Status::ok();
  });
  ASSERT_TRUE(behind.is_ok());
  wait_until_begun();
  release();
  Status status = wait_until_reached(behind.value());
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(status.site().stream, "optimizer");
  EXPECT_EQ(status.site().verb, "host work");
  EXPECT_EQ(status.site().label, "update block 3");
  EXPECT_EQ(status.site().sequence, 3u);
  EXPECT_FALSE(ran);
  EXPECT_TRUE(wait_until_reached(first.value()).is_ok());
  EXPECT_TRUE(wait_until_reached(gated.value()).is_ok());
  EXPECT_EQ(worker.submit("late", {}, nothing()).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(worker.status().code(), StatusCode::kDataLoss);
}

TEST_F(HostWorkerTest, StartsBehindAnotherTimeline) {
  HostWorker first("first", *pool_), second("second", *pool_);
  std::atomic<bool> first_done{false}, in_order{false};
  auto gated = first.submit("gate", {}, gate());
  auto marked = first.submit("mark", {}, [&](TaskPool&) {
    first_done = true;
    return Status::ok();
  });
  auto behind = second.submit_after(marked.value(), "behind", {}, [&](TaskPool&) {
    in_order = first_done.load();
    return Status::ok();
  });
  ASSERT_TRUE(behind.is_ok());
  wait_until_begun();
  EXPECT_FALSE(reached(behind.value()).value());
  release();
  ASSERT_TRUE(wait_until_reached(behind.value()).is_ok());
  EXPECT_TRUE(in_order);
}

TEST_F(HostWorkerTest, AbandonWakesWaitersWhileAJobRuns) {
  HostWorker worker("optimizer", *pool_);
  auto job = worker.submit("gate", {}, gate());
  auto behind = worker.submit("behind", {}, nothing());
  wait_until_begun();
  std::thread waiter(
      [&] { EXPECT_EQ(wait_until_reached(behind.value()).code(), StatusCode::kCancelled); });
  worker.abandon(cancelled("stop"));
  waiter.join();
  EXPECT_EQ(reached(job.value()).status().code(), StatusCode::kCancelled);
  // The job still runs, so what it touches must not be freed yet.
  EXPECT_FALSE(settled(job.value()));
  release();
  while (!settled(job.value())) std::this_thread::yield();
}

TEST_F(HostWorkerTest, DestructionFinishesQueuedJobs) {
  std::atomic<int> ran{0};
  Timepoint last;
  {
    HostWorker worker("optimizer", *pool_);
    for (int i = 0; i < 20; ++i) {
      auto job = worker.submit("job", {}, [&](TaskPool&) {
        ++ran;
        return Status::ok();
      });
      last = job.value();
    }
  }
  EXPECT_EQ(ran, 20);
  EXPECT_TRUE(reached(last).value());
}

TEST_F(HostWorkerTest, RefusesWhatCannotBe) {
  HostWorker worker("optimizer", *pool_);
  EXPECT_EQ(worker.submit("empty", {}, nullptr).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(worker.submit_after({worker.id(), 1}, "own future", {}, nothing()).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(reached({worker.id(), 1}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(worker.status().is_ok());
}

TEST_F(HostWorkerTest, TracesJobs) {
  Trace trace;
  {
    HostWorker worker("optimizer", *pool_);
    worker.set_trace(&trace, 7, 3);
    ASSERT_TRUE(worker.submit("update", {1000, 0}, nothing()).is_ok());
  }
  std::vector<TraceSlice> slices = trace.slices();
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(slices[0].name.view(), "update");
  EXPECT_EQ(slices[0].process, 7);
  EXPECT_EQ(slices[0].track, 3);
  EXPECT_EQ(slices[0].bytes, 1000);
  EXPECT_LE(slices[0].start_ns, slices[0].end_ns);
}

}  // namespace
}  // namespace stagecoach
