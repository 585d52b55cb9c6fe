#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include "tests/testing/decorated_rig.h"

namespace stagecoach {
namespace {

const auto kAWhile = std::chrono::milliseconds(30);

class Hang : public ::testing::TestWithParam<std::string> {
 protected:
  std::string plan() const { return "0." + GetParam() + "#1=never_completes"; }
};
INSTANTIATE_TEST_SUITE_P(Verbs, Hang, ::testing::ValuesIn(stream_verbs()),
                         [](const auto& tested) { return tested.param; });

void expect_open(const Event& event) {
  Result<bool> passed = event.query();
  ASSERT_TRUE(passed.is_ok()) << passed.status().to_string();
  EXPECT_FALSE(*passed);
}

TEST_P(Hang, HoldsUpTheWorkItselfAndAllBehindIt) {
  auto injector = make_injector(plan());
  DecoratedRig rig(injector);
  auto stream = rig.make_stream(0);
  auto after = rig.make_event(0);
  ASSERT_TRUE(rig.submit(GetParam(), *stream, "thing").is_ok());
  EXPECT_TRUE(injector->all_fired());
  ASSERT_TRUE(rig.submit("fill", *stream, "behind").is_ok());
  ASSERT_TRUE(stream->record(*after).is_ok());
  std::this_thread::sleep_for(kAWhile);
  expect_open(*after);
  Result<bool> done = stream->reached(stream->last_submitted().sequence);
  ASSERT_TRUE(done.is_ok()) << done.status().to_string();
  EXPECT_FALSE(*done);
  EXPECT_TRUE(stream->status().is_ok());
  for (float value : rig.read(rig.target(0))) ASSERT_EQ(value, 0.0f);
}

TEST_P(Hang, SpreadsToStreamsThatWaitForIt) {
  DecoratedRig rig(make_injector(plan()));
  auto hung = rig.make_stream(0), waiter = rig.make_stream(1), second = rig.make_stream(1);
  auto mark = rig.make_event(0), passed_on = rig.make_event(1), last = rig.make_event(1);
  ASSERT_TRUE(rig.submit(GetParam(), *hung, "thing").is_ok());
  ASSERT_TRUE(hung->record(*mark).is_ok());
  ASSERT_TRUE(waiter->wait(*mark).is_ok());
  ASSERT_TRUE(rig.submit("fill", *waiter, "behind").is_ok());
  ASSERT_TRUE(waiter->record(*passed_on).is_ok());
  ASSERT_TRUE(second->wait(waiter->last_submitted()).is_ok());
  ASSERT_TRUE(second->record(*last).is_ok());
  std::this_thread::sleep_for(kAWhile);
  expect_open(*passed_on);
  expect_open(*last);
  for (float value : rig.read(rig.target(1))) ASSERT_EQ(value, 0.0f);

  hung->abandon(cancelled("given up"));
  expect_finishes([&] {
    EXPECT_THAT(mark->synchronize().message(), ::testing::HasSubstr("given up"));
    EXPECT_THAT(waiter->synchronize().message(), ::testing::HasSubstr("given up"));
    EXPECT_THAT(last->synchronize().message(), ::testing::HasSubstr("given up"));
  });
}

TEST_P(Hang, LeavesEarlierWorkAndOtherStreamsAlone) {
  DecoratedRig rig(make_injector(plan()));
  auto stream = rig.make_stream(0), other = rig.make_stream(0);
  auto before = rig.make_event(0), elsewhere = rig.make_event(0);
  if (GetParam() != "record") {
    ASSERT_TRUE(stream->record(*before).is_ok());
  }
  ASSERT_TRUE(rig.submit(GetParam(), *stream, "thing").is_ok());
  ASSERT_TRUE(rig.submit("fill", *other, "free").is_ok());
  ASSERT_TRUE(other->record(*elsewhere).is_ok());
  expect_finishes([&] {
    if (before->is_recorded()) {
      EXPECT_TRUE(before->synchronize().is_ok());
    }
    EXPECT_TRUE(elsewhere->synchronize().is_ok());
    EXPECT_TRUE(other->synchronize().is_ok());
  });
  for (float value : rig.read(rig.target(0))) ASSERT_EQ(value, 1.0f);
}

TEST_P(Hang, SynchronizeBlocksUntilTheStreamIsAbandoned) {
  DecoratedRig rig(make_injector(plan()));
  auto stream = rig.make_stream(0);
  auto after = rig.make_event(0);
  ASSERT_TRUE(rig.submit(GetParam(), *stream, "thing").is_ok());
  ASSERT_TRUE(stream->record(*after).is_ok());
  uint64_t sequence = stream->last_submitted().sequence;
  std::atomic<int> returned = 0;
  auto run = [&returned](auto wait) {
    return std::thread([&returned, wait] {
      Status status = wait();
      EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.to_string();
      ++returned;
    });
  };
  std::thread threads[] = {run([&] { return stream->synchronize(); }),
                           run([&] { return after->synchronize(); }),
                           run([&] { return stream->wait_until_reached(sequence); }),
                           run([&] { return rig.device(0).synchronize(); })};
  std::this_thread::sleep_for(kAWhile);
  EXPECT_EQ(returned, 0);
  stream->abandon(deadline_exceeded("no progress"));
  expect_finishes([&threads] {
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_EQ(after->query().status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(stream->status().code(), StatusCode::kDeadlineExceeded);
}

TEST_P(Hang, DestructionNeverWaits) {
  auto rig = std::make_unique<DecoratedRig>(make_injector(plan()));
  auto hung = rig->make_stream(0), waiter = rig->make_stream(1);
  auto mark = rig->make_event(0);
  Result<BufferHandle> used =
      require_buffer(rig->device(0).allocate(64, "used"), rig->device(0), 64, "used");
  ASSERT_TRUE(used.is_ok());
  ASSERT_TRUE(rig->submit(GetParam(), *hung, "thing").is_ok());
  ASSERT_TRUE(hung->fill({(*used)->view(), 0, 4, "behind"}).is_ok());
  ASSERT_TRUE(hung->record(*mark).is_ok());
  ASSERT_TRUE(waiter->wait(*mark).is_ok());
  expect_finishes([&] {
    *used = nullptr;
    hung.reset();
    EXPECT_EQ(mark->query().status().code(), StatusCode::kCancelled);
    EXPECT_EQ(waiter->synchronize().code(), StatusCode::kCancelled);
    waiter.reset();
    mark.reset();
    rig.reset();
  });
}

TEST(HangOrder, AWaiterMayGoBeforeTheStreamItWaitsFor) {
  auto rig = std::make_unique<DecoratedRig>(make_injector("0.fill#1=never_completes"));
  auto hung = rig->make_stream(0), waiter = rig->make_stream(1);
  ASSERT_TRUE(rig->submit("fill", *hung, "thing").is_ok());
  ASSERT_TRUE(waiter->wait(hung->last_submitted()).is_ok());
  expect_finishes([&] {
    waiter.reset();
    hung.reset();
    rig.reset();
  });
}

TEST(HangOrder, AnEventRecordedAgainOnAFreeStreamIsFree) {
  DecoratedRig rig(make_injector("0.fill#1=never_completes"));
  auto hung = rig.make_stream(0), free_stream = rig.make_stream(0);
  auto event = rig.make_event(0);
  ASSERT_TRUE(rig.submit("fill", *hung, "thing").is_ok());
  ASSERT_TRUE(hung->record(*event).is_ok());
  expect_open(*event);
  ASSERT_TRUE(free_stream->record(*event).is_ok());
  expect_finishes([&] { EXPECT_TRUE(event->synchronize().is_ok()); });
}

}  // namespace
}  // namespace stagecoach
