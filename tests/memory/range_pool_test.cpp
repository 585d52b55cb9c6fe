#include "memory/range_pool.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(RangePool, TakesTheLowestRangeThatFits) {
  RangePool pool(100);
  EXPECT_EQ(pool.reserve(40), 0);
  EXPECT_EQ(pool.reserve(40), 40);
  EXPECT_EQ(pool.reserve(40), std::nullopt);
  EXPECT_EQ(pool.reserve(20), 80);
  pool.release(0);
  EXPECT_EQ(pool.reserve(41), std::nullopt);
  EXPECT_EQ(pool.reserve(10), 0);
  EXPECT_EQ(pool.reserve(30), 10);
  EXPECT_EQ(pool.reserve(1), std::nullopt);
  pool.release(80);
  pool.release(40);
  EXPECT_EQ(pool.reserve(60), 40);
  EXPECT_EQ(RangePool(0).reserve(1), std::nullopt);
}

}  // namespace
}  // namespace stagecoach
