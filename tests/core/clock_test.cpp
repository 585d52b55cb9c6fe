#include "core/clock.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(Clock, RealTimeNeverGoesBack) {
  RealClock& clock = RealClock::instance();
  int64_t last = clock.now_ns();
  for (int i = 0; i < 1000; ++i) {
    int64_t now = clock.now_ns();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Clock, SleepsUntilTheDeadline) {
  RealClock& clock = RealClock::instance();
  int64_t deadline = clock.now_ns() + 2'000'000;
  sleep_until_ns(deadline);
  EXPECT_GE(clock.now_ns(), deadline);
  sleep_until_ns(deadline - 1'000'000'000);  // past: returns at once
}

TEST(Clock, VirtualTimeMovesOnlyWhenTold) {
  VirtualClock clock;
  EXPECT_EQ(clock.now_ns(), 0);
  clock.advance_to(5);
  clock.advance_to(5);
  EXPECT_EQ(clock.now_ns(), 5);
}

TEST(ClockDeathTest, VirtualTimeRefusesThePast) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  VirtualClock clock;
  clock.advance_to(5);
  EXPECT_DEATH(clock.advance_to(4), "does not hold");
}

}  // namespace
}  // namespace stagecoach
