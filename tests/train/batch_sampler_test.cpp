#include "train/batch_sampler.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <set>

#include "tests/train/token_file_image.h"

namespace stagecoach {
namespace {

/// Tokens 0, 1, 2, …
TokenData counting(int64_t count) {
  TokenFileImage image;
  image.ids.resize(static_cast<size_t>(count));
  std::iota(image.ids.begin(), image.ids.end(), 0);
  return data_of({image}, Packing::kStream);
}

TokenWindows windows_of(const TokenData& data, int64_t sequence) {
  return TokenWindows::create(data, sequence, false).value();
}

TEST(BatchSampler, AnEpochVisitsEveryWindowOnceInItsOwnOrder) {
  for (int64_t count : {1, 2, 3, 5, 16, 17, 100, 230}) {
    TokenData data = counting(count * 4 + 1);
    TokenWindows windows = windows_of(data, 4);
    BatchSampler sampler(windows, 1, 9);
    EXPECT_EQ(windows.count(), count);
    EXPECT_EQ(sampler.iterations_of(1), count);
    TokenBatch batch;
    std::vector<std::vector<int32_t>> epochs(2);
    for (int64_t i = 0; i < 2 * count; ++i) {
      ASSERT_TRUE(sampler.fill(i, batch).is_ok());
      epochs[static_cast<size_t>(i / count)].push_back(batch.inputs[0]);
    }
    for (const std::vector<int32_t>& epoch : epochs) {
      EXPECT_EQ(std::set<int32_t>(epoch.begin(), epoch.end()).size(), static_cast<size_t>(count));
    }
    if (count >= 16) {
      EXPECT_NE(epochs[0], epochs[1]);
      EXPECT_FALSE(std::is_sorted(epochs[0].begin(), epochs[0].end()));
    }
  }
}

// Field report 51: what a run draws depends on nothing but the iteration, also across epochs.
TEST(BatchSampler, BatchesArePureFunctionsOfSeedAndIteration) {
  TokenData data = counting(1000);
  TokenWindows windows = windows_of(data, 8);
  BatchSampler first(windows, 3, 1), same(windows, 3, 1), other(windows, 3, 2);
  TokenBatch a, b, c;
  for (int64_t iteration : {0, 17, 41, 42, 100}) {
    ASSERT_TRUE(first.fill(iteration, a).is_ok());
    ASSERT_TRUE(same.fill(iteration, b).is_ok());
    ASSERT_TRUE(other.fill(iteration, c).is_ok());
    EXPECT_EQ(a.inputs, b.inputs);
    EXPECT_NE(a.inputs, c.inputs);
    EXPECT_EQ(a.sequences, 3);
    for (size_t i = 0; i < a.inputs.size(); ++i) EXPECT_EQ(a.labels[i], a.inputs[i] + 1);
  }
}

TEST(BatchSampler, FewerWindowsThanABatchSpanEpochs) {
  TokenData data = counting(9);  // two windows of 4
  TokenWindows windows = windows_of(data, 4);
  BatchSampler sampler(windows, 5, 1);
  TokenBatch batch;
  ASSERT_TRUE(sampler.fill(0, batch).is_ok());
  std::vector<int> seen(2, 0);
  for (size_t i = 0; i < 5; ++i) ++seen[static_cast<size_t>(batch.inputs[i * 4] / 4)];
  EXPECT_GE(seen[0], 2);
  EXPECT_GE(seen[1], 2);
}

TEST(BatchSampler, EpochsAreWholePassesAndNotOneIterationMore) {
  TokenData data = counting(41);
  TokenWindows windows = windows_of(data, 4);  // 10 of them
  BatchSampler sampler(windows, 4, 1);
  EXPECT_EQ(sampler.iterations_of(1), 3);
  EXPECT_EQ(sampler.iterations_of(2), 5);
  EXPECT_GT(sampler.iterations_of(std::numeric_limits<int64_t>::max()), int64_t{1} << 60);
}

}  // namespace
}  // namespace stagecoach
