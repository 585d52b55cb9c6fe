#include "tools/bandwidth/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

namespace stagecoach {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(SampleStatistics, AreThoseComputedByHand) {
  SampleStatistics one = summarize(std::vector<double>{4, 1, 3, 2, 10});
  EXPECT_EQ(one.n, 5);
  EXPECT_EQ(one.median, 3);
  EXPECT_EQ(one.min, 1);
  EXPECT_EQ(one.max, 10);
  // Distances from 3 are 0, 1, 1, 2, 7.
  EXPECT_DOUBLE_EQ(one.sigma, 1.4826);
  // Mean 4, squares 0 + 9 + 1 + 4 + 36 = 50, by 4 is 12.5.
  EXPECT_NEAR(one.cv, 3.5355339 / 4, 1e-7);
  EXPECT_NEAR(one.p5, 1.2, 1e-12);
  EXPECT_NEAR(one.p95, 8.8, 1e-12);
  EXPECT_NEAR(one.p99, 9.76, 1e-12);
  EXPECT_GE(one.median, one.median_low);
  EXPECT_LE(one.median, one.median_high);
  EXPECT_GE(one.median_low, 1);
  EXPECT_LE(one.median_high, 10);
}

TEST(SampleStatistics, OfNothingAndOfOneAreFinite) {
  EXPECT_EQ(summarize({}).n, 0);
  EXPECT_EQ(summarize({}).cv, 0);
  SampleStatistics one = summarize(std::vector<double>{7});
  EXPECT_EQ(one.median, 7);
  EXPECT_EQ(one.cv, 0);
  EXPECT_EQ(one.median_low, 7);
  EXPECT_EQ(one.median_high, 7);
}

TEST(SampleStatistics, IntervalsOfTheMedianNarrowWithSamplesEitherWay) {
  auto width = [](size_t count) {
    std::vector<double> samples(count);
    // The same spread whatever the count, in an order that is not sorted.
    for (size_t i = 0; i < count; ++i) {
      samples[i] = static_cast<double>(i * 7919 % count) / static_cast<double>(count);
    }
    SampleStatistics one = summarize(samples);
    EXPECT_LT(one.median_low, one.median);
    EXPECT_GT(one.median_high, one.median);
    return one.median_high - one.median_low;
  };
  double of_25 = width(25), of_199 = width(199), of_201 = width(201), of_2000 = width(2000);
  EXPECT_LT(of_199, of_25);
  // Bootstrap below 200, ranks above: they meet.
  EXPECT_NEAR(of_199, of_201, 0.3 * of_199);
  EXPECT_LT(of_2000, of_201 / 2);
}

TEST(SampleFlags, BimodalNeedsTwoGroupsAndAGap) {
  EXPECT_TRUE(is_bimodal(std::vector<double>{50, 51, 50, 26, 25, 26, 50}));
  EXPECT_FALSE(is_bimodal(std::vector<double>{50, 51, 50, 52, 51, 50, 25}));  // one outlier
  EXPECT_FALSE(is_bimodal(std::vector<double>{50, 51, 52, 53, 54, 55, 56}));  // no gap
  EXPECT_FALSE(is_bimodal(std::vector<double>{50, 50, 50.1, 50.9, 51, 51}));  // a small gap
  EXPECT_FALSE(is_bimodal(std::vector<double>{50, 25}));
}

TEST(SampleFlags, DriftIsAChangeWithTime) {
  EXPECT_TRUE(is_drifting(std::vector<double>{50, 49.5, 49, 48.4, 48, 47.5, 47}));
  EXPECT_FALSE(is_drifting(std::vector<double>{50, 47, 49, 48, 50, 47.5, 49}));
  // Steady, but by less than anybody cares.
  EXPECT_FALSE(is_drifting(std::vector<double>{50, 50.01, 50.02, 50.03, 50.04, 50.05, 50.06}));
  EXPECT_FALSE(is_drifting(std::vector<double>(9, 50)));
}

TEST(SampleFlags, AreListedWithTheirNames) {
  EXPECT_THAT(shape_flags(std::vector<double>(7, 50), 0.05), IsEmpty());
  EXPECT_THAT(shape_flags(std::vector<double>{50, 51, 50, 26, 25, 26, 50}, 0.05),
              ElementsAre(SampleFlag::kNoisy, SampleFlag::kBimodal));
  EXPECT_EQ(sample_flag_name(SampleFlag::kNotSettled), "not_settled");
  EXPECT_EQ(sample_flag_name(SampleFlag::kShortWindow), "short_window");
  EXPECT_EQ(sample_flag_name(SampleFlag::kInterrupted), "interrupted");
}

}  // namespace
}  // namespace stagecoach
