#include "train/sampling.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

namespace stagecoach {
namespace {

const std::vector<float> kLogits = {1.0f, 3.0f, 2.0f, 3.0f};

int32_t draw(double temperature, double top_p, double uniform) {
  return sample_token(kLogits, {temperature, top_p}, uniform);
}

TEST(Sampling, ZeroTemperatureTakesTheFirstLikeliest) {
  for (double uniform : {0.0, 0.5, 0.999}) EXPECT_EQ(draw(0.0, 1.0, uniform), 1);
}

TEST(Sampling, FollowsTheDistribution) {
  // Sorted: 1, 3 (weight 1 each), 2 (e^-1), 0 (e^-2).
  double total = 2 + std::exp(-1.0) + std::exp(-2.0);
  EXPECT_EQ(draw(1.0, 1.0, 0.0), 1);
  EXPECT_EQ(draw(1.0, 1.0, 0.999 / total), 1);
  EXPECT_EQ(draw(1.0, 1.0, 1.001 / total), 3);
  EXPECT_EQ(draw(1.0, 1.0, 2.001 / total), 2);
  EXPECT_EQ(draw(1.0, 1.0, (2.001 + std::exp(-1.0)) / total), 0);
  EXPECT_EQ(draw(1.0, 1.0, std::nextafter(1.0, 0.0)), 0);
  std::vector<int> counts(4, 0);
  constexpr int kDraws = 10'000;
  for (int i = 0; i < kDraws; ++i) ++counts[draw(1.0, 1.0, (i + 0.5) / kDraws)];
  EXPECT_NEAR(counts[1], kDraws / total, 2);
  EXPECT_NEAR(counts[2], kDraws * std::exp(-1.0) / total, 2);
}

TEST(Sampling, TemperatureSharpensAndFlattens) {
  auto share_of_last = [](double temperature) {
    int count = 0;
    for (int i = 0; i < 1000; ++i) count += draw(temperature, 1.0, (i + 0.5) / 1000) == 0 ? 1 : 0;
    return count;
  };
  EXPECT_LT(share_of_last(0.5), share_of_last(1.0));
  EXPECT_LT(share_of_last(1.0), share_of_last(4.0));
}

TEST(Sampling, TopPKeepsTheLeastSetThatReachesTheMass) {
  for (int i = 0; i < 100; ++i) {
    double uniform = (i + 0.5) / 100;
    EXPECT_EQ(draw(1.0, 1e-9, uniform), 1);  // always one token
    int32_t half = draw(1.0, 0.5, uniform);
    EXPECT_TRUE(half == 1 || half == 3) << half;
    EXPECT_NE(draw(1.0, 0.9, uniform), 0);
  }
}

TEST(Sampling, NeverDrawsWhatIsNotFinite) {
  std::vector<float> logits = {NAN, 1.0f, INFINITY, -INFINITY};
  for (int i = 0; i < 10; ++i) EXPECT_EQ(sample_token(logits, {1.0, 1.0}, i / 10.0), 1);
  std::vector<float> none = {NAN, -INFINITY};
  EXPECT_EQ(sample_token(none, {1.0, 1.0}, 0.5), -1);
  EXPECT_EQ(sample_token({}, {1.0, 1.0}, 0.5), -1);
}

}  // namespace
}  // namespace stagecoach
