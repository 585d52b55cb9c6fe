#include "train/learning_rate.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(LearningRate, WarmsUpAndDecays) {
  EXPECT_DOUBLE_EQ(learning_rate_at(0, 100, 1.0, 10, "cosine", 0.1), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(9, 100, 1.0, 10, "cosine", 0.1), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(10, 100, 1.0, 10, "cosine", 0.1), 1.0);
  EXPECT_NEAR(learning_rate_at(55, 100, 1.0, 10, "cosine", 0.1), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate_at(100, 100, 1.0, 10, "cosine", 0.1), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate_at(55, 100, 2.0, 10, "linear", 0.0), 1.0, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate_at(99, 100, 2.0, 10, "constant", 0.1), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(0, 100, 2.0, 0, "linear", 0.0), 2.0);
  // A warm-up longer than the run never reaches the peak, and a run may go on past its end.
  EXPECT_LT(learning_rate_at(5, 6, 1.0, 10, "cosine", 0.1), 1.0);
  EXPECT_NEAR(learning_rate_at(500, 100, 1.0, 10, "cosine", 0.1), 0.1, 1e-12);
}

}  // namespace
}  // namespace stagecoach
