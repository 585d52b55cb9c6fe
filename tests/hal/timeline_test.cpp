#include "hal/timeline.h"

#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include "tests/hal/manual_timeline.h"

namespace stagecoach {
namespace {

TEST(Timeline, IdentifiersAreNeverReused) {
  TimelineId first = ManualTimeline().id();
  TimelineId second = ManualTimeline().id();
  EXPECT_NE(first, 0u);
  EXPECT_LT(first, second);
}

TEST(Timeline, AnswersThroughTheDirectory) {
  ManualTimeline timeline("lane");
  EXPECT_EQ(timeline_name(timeline.id()), "lane");
  EXPECT_FALSE(reached({timeline.id(), 1}).value());
  timeline.completed = 1;
  EXPECT_TRUE(reached({timeline.id(), 1}).value());
  EXPECT_TRUE(wait_until_reached({timeline.id(), 1}).is_ok());
  timeline.failed = true;
  EXPECT_EQ(reached({timeline.id(), 2}).status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(reached({timeline.id(), 1}).value());
  EXPECT_FALSE(settled({timeline.id(), 2}));
  timeline.idle = true;
  EXPECT_TRUE(settled({timeline.id(), 2}));
}

TEST(Timeline, NoneAndGoneAreReached) {
  Timepoint gone;
  {
    ManualTimeline timeline;
    gone = {timeline.id(), 5};
    EXPECT_TRUE(internal::timeline_is_live(gone.timeline));
  }
  for (Timepoint timepoint : {Timepoint{}, gone}) {
    EXPECT_TRUE(reached(timepoint).value());
    EXPECT_TRUE(wait_until_reached(timepoint).is_ok());
    EXPECT_TRUE(settled(timepoint));
    EXPECT_EQ(timeline_name(timepoint.timeline), "none");
    EXPECT_FALSE(internal::timeline_is_live(timepoint.timeline));
  }
}

TEST(Timeline, DestructionWaitsForThoseWhoAreInside) {
  auto timeline = std::make_unique<ManualTimeline>();
  Timepoint timepoint{timeline->id(), 1};
  std::thread waiter([&] { EXPECT_TRUE(wait_until_reached(timepoint).is_ok()); });
  while (timeline->waiting == 0) std::this_thread::yield();
  ManualTimeline* raw = timeline.get();
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    timeline.reset();
    destroyed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(destroyed);
  // It is on its way out, so nobody new gets in.
  EXPECT_FALSE(internal::timeline_is_live(timepoint.timeline));
  raw->completed = 1;
  waiter.join();
  destroyer.join();
}

TEST(Timeline, LeaseOfNobodyIsNull) {
  internal::TimelineLease none(0), unknown(~TimelineId{0});
  EXPECT_EQ(none.get(), nullptr);
  EXPECT_EQ(unknown.get(), nullptr);
}

}  // namespace
}  // namespace stagecoach
