#include "hal/ring_queue.h"

#include <gtest/gtest.h>
#include <memory>

namespace stagecoach {
namespace {

TEST(RingQueue, KeepsTheOrderWhileItGrowsAndWraps) {
  RingQueue<int> queue;
  int next_in = 0, next_out = 0;
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < round; ++i) queue.push_back(next_in++);
    for (int i = 0; i < round - 1; ++i) EXPECT_EQ(queue.pop_front(), next_out++);
  }
  EXPECT_EQ(queue.size(), static_cast<size_t>(next_in - next_out));
  for (size_t i = 0; i < queue.size(); ++i) EXPECT_EQ(queue[i], next_out + static_cast<int>(i));
  while (!queue.empty()) EXPECT_EQ(queue.pop_front(), next_out++);
  EXPECT_EQ(next_in, next_out);
}

TEST(RingQueue, PoppingReleasesWhatTheElementOwned) {
  RingQueue<std::shared_ptr<int>> queue;
  auto value = std::make_shared<int>(1);
  queue.push_back(value);
  queue.push_back(value);
  EXPECT_EQ(value.use_count(), 3);
  queue.pop_front();
  EXPECT_EQ(value.use_count(), 2);
  queue.clear();
  EXPECT_EQ(value.use_count(), 1);
}

TEST(RingQueueDeathTest, EmptyHasNoFront) {
  RingQueue<int> queue;
  EXPECT_DEATH(queue.front(), "size_ > 0");
  EXPECT_DEATH(queue[0], "index < size_");
}

}  // namespace
}  // namespace stagecoach
