#include "train/optimizer.h"

#include <cmath>
#include <gtest/gtest.h>
#include <memory>

#include "core/random.h"

namespace stagecoach {
namespace {

std::vector<float> normals(int64_t count, uint32_t site, double scale) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] =
        static_cast<float>(scale * random_normal({5, 0, 0, 0, site}, static_cast<uint64_t>(i)));
  }
  return values;
}

struct State {
  std::vector<float> parameters, first, second;
};

State run_steps(int64_t count, int threads, int steps) {
  std::unique_ptr<TaskPool> pool = TaskPool::create(threads);
  State state{normals(count, 1, 1.0), std::vector<float>(count), std::vector<float>(count)};
  for (int step = 1; step <= steps; ++step) {
    std::vector<float> gradients = normals(count, static_cast<uint32_t>(10 + step), 0.1);
    AdamWStep options{1e-2f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.5f, step};
    adamw_update(state.parameters.data(), state.first.data(), state.second.data(), gradients.data(),
                 count, options, *pool);
  }
  return state;
}

// The formulas of Loshchilov & Hutter in double precision, written as in the paper.
TEST(Optimizer, AdamWMatchesThePaper) {
  constexpr int64_t kCount = 1000;
  State state = run_steps(kCount, 2, 5);
  std::vector<float> start = normals(kCount, 1, 1.0);
  for (int64_t i = 0; i < kCount; ++i) {
    double parameter = start[i], first = 0, second = 0;
    for (int step = 1; step <= 5; ++step) {
      double normal =
          static_cast<float>(0.1 * random_normal({5, 0, 0, 0, static_cast<uint32_t>(10 + step)},
                                                 static_cast<uint64_t>(i)));
      double gradient = 0.5 * normal;
      first = 0.9 * first + 0.1 * gradient;
      second = 0.95 * second + 0.05 * gradient * gradient;
      double first_hat = first / (1 - std::pow(0.9, step));
      double second_hat = second / (1 - std::pow(0.95, step));
      parameter -= 1e-2 * 0.1 * parameter;
      parameter -= 1e-2 * first_hat / (std::sqrt(second_hat) + 1e-8);
    }
    ASSERT_NEAR(state.parameters[i], parameter, 2e-6) << i;
    ASSERT_NEAR(state.first[i], first, 1e-7) << i;
    ASSERT_NEAR(state.second[i], second, 1e-8) << i;
  }
}

TEST(Optimizer, BitsDoNotDependOnThreads) {
  constexpr int64_t kCount = 200'003;  // several tiles and a tail
  State one = run_steps(kCount, 1, 3);
  for (int threads : {2, 4}) {
    State many = run_steps(kCount, threads, 3);
    EXPECT_EQ(many.parameters, one.parameters);
    EXPECT_EQ(many.first, one.first);
    EXPECT_EQ(many.second, one.second);
  }
}

TEST(Optimizer, SumOfSquaresIsExactAndIndependentOfThreads) {
  constexpr int64_t kCount = 300'001;
  std::vector<float> values = normals(kCount, 3, 2.0);
  double expected = 0;
  for (float value : values) expected += double{value} * double{value};
  std::unique_ptr<TaskPool> one = TaskPool::create(1), four = TaskPool::create(4);
  double sum = sum_of_squares(values.data(), kCount, *one);
  EXPECT_NEAR(sum, expected, 1e-9 * expected);
  EXPECT_EQ(sum, sum_of_squares(values.data(), kCount, *four));
  EXPECT_EQ(sum_of_squares(values.data(), 0, *one), 0.0);
  values[5] = NAN;
  EXPECT_TRUE(std::isnan(sum_of_squares(values.data(), kCount, *four)));
  values[5] = 1e30f;  // its square is beyond fp32
  EXPECT_TRUE(std::isfinite(sum_of_squares(values.data(), kCount, *four)));
}

TEST(Optimizer, LearningRateWarmsUpAndDecays) {
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
