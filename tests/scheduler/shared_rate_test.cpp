#include "scheduler/shared_rate.h"

#include <gtest/gtest.h>
#include <random>

namespace stagecoach {
namespace {

TEST(SharedRate, WithoutLimitsATransferTakesItsTime) {
  EXPECT_EQ(end_of_transfer_ns({}, 100, 50, 1e9), 150);
}

TEST(SharedRate, TransfersAtOneTimeShareTheLimitInOrder) {
  SharedRate rate(10, 4);
  // Alone each would take 100 ns at 10 bytes a ns: the second waits for what the first leaves.
  EXPECT_NEAR(end_of_transfer_ns({&rate}, 0, 100, 1000), 100, 1e-9);
  EXPECT_NEAR(end_of_transfer_ns({&rate}, 0, 100, 1000), 200, 1e-9);
  // At half the rate, two fit beside each other from 200 on.
  EXPECT_NEAR(end_of_transfer_ns({&rate}, 200, 200, 1000), 400, 1e-9);
  EXPECT_NEAR(end_of_transfer_ns({&rate}, 200, 200, 1000), 400, 1e-9);
  // Entered later, but for a time that is free: order of entry is not order of time.
  EXPECT_NEAR(end_of_transfer_ns({&rate}, 1000, 100, 1000), 1100, 1e-9);
  EXPECT_NEAR(end_of_transfer_ns({&rate}, 500, 100, 1000), 600, 1e-9);
}

TEST(SharedRate, TheTighterOfTwoLimitsCounts) {
  SharedRate wide(100, 8), narrow(5, 8);
  EXPECT_NEAR(end_of_transfer_ns({&wide, &narrow}, 0, 10, 1000), 200, 1e-9);
}

// Random transfers in random order: no span carries more than its limit, all bytes are entered, and
// none is faster than alone.
TEST(SharedRate, NeverCarriesMoreThanTheLimit) {
  std::mt19937_64 generator(3);
  std::uniform_real_distribution<double> start(0, 5000), length(0, 300), speed(0.1, 20);
  SharedRate rate(7, 13);
  double sent = 0, last = 0;
  for (int trial = 0; trial < 400; ++trial) {
    double at = start(generator), alone = length(generator);
    double bytes = alone * speed(generator);
    double end = end_of_transfer_ns({&rate}, at, alone, bytes);
    EXPECT_GE(end, at + alone - 1e-6);
    sent += bytes;
    last = std::max(last, end);
  }
  double carried = 0;
  for (int64_t span = 0; static_cast<double>(span) * 13 <= last; ++span) {
    EXPECT_GE(rate.left(span), -1e-6);
    carried += rate.span_bytes() - rate.left(span);
  }
  EXPECT_NEAR(carried, sent, 1e-6 * sent);
}

}  // namespace
}  // namespace stagecoach
