#include "core/suggest.h"

#include <gtest/gtest.h>
#include <vector>

namespace stagecoach {
namespace {

const std::vector<std::string> kNames = {"iterations", "batch",     "microbatches", "rounds",
                                         "save_every", "log_every", "lr",           "seed"};

TEST(Suggest, FindsTheNearest) {
  EXPECT_EQ(nearest_name("iteration", kNames), "iterations");
  EXPECT_EQ(nearest_name("micro_batches", kNames), "microbatches");
  EXPECT_EQ(nearest_name("micro-batch", kNames), "microbatches");
  EXPECT_EQ(nearest_name("bacth", kNames), "batch");  // neighbours swapped
  EXPECT_EQ(nearest_name("Seed", kNames), "seed");
  EXPECT_EQ(nearest_name("save-every", kNames), "save_every");
  EXPECT_EQ(nearest_name("lt", kNames), "lr");
}

TEST(Suggest, OffersNothingThatIsNotNear) {
  EXPECT_EQ(nearest_name("temperature", kNames), "");
  EXPECT_EQ(nearest_name("xy", kNames), "");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(nearest_name("batch", {}), "");
}

TEST(Suggest, FirstOfEqualsWins) {
  std::vector<std::string> names = {"aab", "aac"};
  EXPECT_EQ(nearest_name("aaa", names), "aab");
}

}  // namespace
}  // namespace stagecoach
