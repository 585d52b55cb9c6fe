#include "tools/bandwidth/common_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecoach {
namespace {

using ::testing::ElementsAre;

TEST(CommonWindow, OfOneStreamIsFromItsFirstMarkToItsLast) {
  std::vector<FlowMarks> flows = {{{1000, 100}, {2000, 200}, {4000, 400}}};
  WindowRates window = common_window(flows);
  EXPECT_EQ(window.start_ns, 1000);
  EXPECT_EQ(window.end_ns, 4000);
  EXPECT_DOUBLE_EQ(window.total_bytes_per_s, 1e8);
  EXPECT_DOUBLE_EQ(window.coverage, 1);
  EXPECT_DOUBLE_EQ(window.fairness(), 1);
}

// A stream that ends early must not make the others look slow, nor its own rate count when it has
// nothing left: neither the sum of rates nor bytes by the slowest.
TEST(CommonWindow, IsTheTimeInWhichAllAreActive) {
  std::vector<FlowMarks> flows = {{{0, 100}, {1000, 1100}, {2000, 2100}},
                                  {{500, 10}, {1500, 510}, {4500, 9510}}};
  WindowRates window = common_window(flows);
  EXPECT_EQ(window.start_ns, 500);
  EXPECT_EQ(window.end_ns, 2000);
  // 1500 bytes of the first; 500 and a sixth of 9000 of the second.
  EXPECT_THAT(window.bytes_per_s, ElementsAre(1e9, testing::DoubleNear(2000.0 / 1500 * 1e9, 1)));
  EXPECT_NEAR(window.total_bytes_per_s, 3500.0 / 1500 * 1e9, 1);
  EXPECT_NEAR(window.coverage, 1500.0 / 4500, 1e-12);
}

TEST(CommonWindow, MayBeEmpty) {
  std::vector<FlowMarks> flows = {{{0, 1}, {100, 2}}, {{100, 1}, {200, 2}}};
  WindowRates window = common_window(flows);
  EXPECT_TRUE(window.is_empty());
  EXPECT_EQ(window.total_bytes_per_s, 0);
  EXPECT_EQ(window.fairness(), 0);
  EXPECT_TRUE(common_window({}).is_empty());
}

// Streams that took turns brought something all the same.
TEST(CommonWindow, WithoutOneTheWholeTimeCounts) {
  std::vector<FlowMarks> turns = {{{0, 100}, {1000, 1100}}, {{1000, 1000}, {2000, 2000}}};
  WindowRates rates = window_or_whole_time(turns);
  EXPECT_EQ(rates.coverage, 0);
  EXPECT_EQ(rates.end_ns - rates.start_ns, 2000);
  EXPECT_THAT(rates.bytes_per_s, ElementsAre(5e8, 1e9));
  EXPECT_DOUBLE_EQ(rates.total_bytes_per_s, 1.5e9);
  EXPECT_GT(rates.fairness(), 0.8);
  std::vector<FlowMarks> together = {{{0, 100}, {1000, 1100}}, {{0, 100}, {1000, 2100}}};
  EXPECT_DOUBLE_EQ(window_or_whole_time(together).total_bytes_per_s, 3e9);
  EXPECT_TRUE(window_or_whole_time({}).is_empty());
}

TEST(CommonWindow, FairnessIsJains) {
  WindowRates window;
  window.bytes_per_s = {3, 1};
  EXPECT_DOUBLE_EQ(window.fairness(), 16.0 / 20);
  window.bytes_per_s = {5, 0, 0, 0};
  EXPECT_DOUBLE_EQ(window.fairness(), 0.25);
}

}  // namespace
}  // namespace stagecoach
