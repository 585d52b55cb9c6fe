#include "core/task_pool.h"

#include <atomic>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>
#include <vector>

#include "core/thread_task_pool.h"

namespace stagecoach {
namespace {

TEST(TaskPool, CallsEveryIndexOnce) {
  for (int threads : {1, 2, 5}) {
    std::unique_ptr<TaskPool> pool = TaskPool::create(threads);
    EXPECT_EQ(pool->thread_count(), threads);
    for (int64_t count : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
      pool->parallel_for(count, [&](int64_t index) { ++calls[static_cast<size_t>(index)]; });
      for (const std::atomic<int>& call : calls) ASSERT_EQ(call.load(), 1);
    }
  }
}

// Threads that can be bound: each begins with what it was told to do, and the caller is left alone.
TEST(ThreadTaskPool, EveryThreadOfItsOwnBeginsWithOnStart) {
  std::atomic<int> started{0};
  std::thread::id caller = std::this_thread::get_id();
  {
    std::unique_ptr<TaskPool> pool = create_thread_task_pool(4, [&] {
      EXPECT_NE(std::this_thread::get_id(), caller);
      ++started;
    });
    EXPECT_EQ(pool->thread_count(), 4);
    std::atomic<int> calls{0};
    pool->parallel_for(100, [&](int64_t) { ++calls; });
    EXPECT_EQ(calls.load(), 100);
  }
  EXPECT_EQ(started.load(), 3);
}

TEST(TaskPool, FewerThanOneThreadMeansOne) {
  EXPECT_EQ(TaskPool::create(0)->thread_count(), 1);
  EXPECT_EQ(TaskPool::create(-3)->thread_count(), 1);
}

TEST(TaskPool, WritesAreVisibleAfterwards) {
  std::unique_ptr<TaskPool> pool = TaskPool::create(4);
  std::vector<int64_t> values(4096);
  for (int round = 0; round < 20; ++round) {
    pool->parallel_for(4096, [&](int64_t index) { values[static_cast<size_t>(index)] += index; });
  }
  int64_t sum = std::accumulate(values.begin(), values.end(), int64_t{0});
  EXPECT_EQ(sum, 20 * (4095 * 4096 / 2));
}

TEST(TaskPool, NestsWithoutDeadlock) {
  std::unique_ptr<TaskPool> pool = TaskPool::create(3);
  std::atomic<int> count{0};
  pool->parallel_for(8, [&](int64_t) {
    pool->parallel_for(8, [&](int64_t) { pool->parallel_for(4, [&](int64_t) { ++count; }); });
  });
  EXPECT_EQ(count.load(), 256);
}

TEST(TaskPool, ManyCallersAtOnce) {
  std::unique_ptr<TaskPool> pool = TaskPool::create(2);
  std::vector<int64_t> sums(6);
  {
    std::vector<std::jthread> callers;
    for (size_t caller = 0; caller < sums.size(); ++caller) {
      callers.emplace_back([&, caller] {
        for (int round = 0; round < 20; ++round) {
          std::vector<int64_t> tiles(50);
          pool->parallel_for(50, [&](int64_t i) { tiles[static_cast<size_t>(i)] = i + 1; });
          sums[caller] += std::accumulate(tiles.begin(), tiles.end(), int64_t{0});
        }
      });
    }
  }
  for (int64_t sum : sums) EXPECT_EQ(sum, 20 * 50 * 51 / 2);
}

TEST(TaskPool, TiledSumDoesNotDependOnThreads) {
  constexpr int64_t kTiles = 64;
  constexpr int64_t kTileSize = 257;
  auto tiled_sum = [&](int threads) {
    std::unique_ptr<TaskPool> pool = TaskPool::create(threads);
    std::vector<float> tiles(kTiles);
    pool->parallel_for(kTiles, [&](int64_t tile) {
      float sum = 0;
      for (int64_t i = 0; i < kTileSize; ++i) {
        sum += 1.0f / static_cast<float>(tile * kTileSize + i + 1);
      }
      tiles[static_cast<size_t>(tile)] = sum;
    });
    return std::accumulate(tiles.begin(), tiles.end(), 0.0f);
  };
  float expected = tiled_sum(1);
  for (int threads : {2, 3, 7}) EXPECT_EQ(tiled_sum(threads), expected);
}

TEST(TaskPool, StartsAndStopsOften) {
  for (int i = 0; i < 50; ++i) {
    std::unique_ptr<TaskPool> pool = TaskPool::create(3);
    std::atomic<int> count{0};
    pool->parallel_for(3, [&](int64_t) { ++count; });
    ASSERT_EQ(count.load(), 3);
  }
}

}  // namespace
}  // namespace stagecoach
