#include "scheduler/device_share.h"

#include <gtest/gtest.h>
#include <numeric>

namespace stagecoach {
namespace {

std::vector<UpdateLoad> equal_blocks(int count) {
  return std::vector<UpdateLoad>(static_cast<size_t>(count), UpdateLoad{100, true});
}

int64_t elements_of(const std::vector<UpdateLoad>& blocks, const std::vector<int>& devices,
                    int device) {
  int64_t sum = 0;
  for (size_t block = 0; block < blocks.size(); ++block) {
    if (devices[block] == device) sum += blocks[block].elements;
  }
  return sum;
}

TEST(DeviceShareTest, NothingAndAll) {
  EXPECT_EQ(share_updates(equal_blocks(5), 0, 2), std::vector<int>(5, -1));
  EXPECT_EQ(share_updates(equal_blocks(5), 1, 1), std::vector<int>(5, 0));
  EXPECT_EQ(share_updates(equal_blocks(4), 1, 2), (std::vector<int>{0, 1, 0, 1}));
}

TEST(DeviceShareTest, SpreadsBlocksEvenly) {
  EXPECT_EQ(share_updates(equal_blocks(8), 0.5, 1), (std::vector<int>{0, -1, 0, -1, 0, -1, 0, -1}));
  EXPECT_EQ(share_updates(equal_blocks(8), 0.25, 1),
            (std::vector<int>{-1, 0, -1, -1, -1, 0, -1, -1}));
}

TEST(DeviceShareTest, LeavesToTheHostWhatDevicesCannotUpdate) {
  std::vector<UpdateLoad> blocks = equal_blocks(6);
  blocks[0].fits_on_device = false;
  blocks[3].elements = 0;  // frozen
  EXPECT_EQ(share_updates(blocks, 1, 1), (std::vector<int>{-1, 0, 0, -1, 0, 0}));
  // Others stand in for it.
  std::vector<int> half = share_updates(blocks, 0.5, 1);
  EXPECT_EQ(half[0], -1);
  EXPECT_EQ(elements_of(blocks, half, 0), 300);
}

TEST(DeviceShareTest, KeepsToTheShareWithinHalfOfTheLargestBlock) {
  for (double share : {0.1, 0.33, 0.5, 0.8, 0.95}) {
    std::vector<UpdateLoad> blocks = {{5000, true}, {64, true}};
    for (int64_t block = 0; block < 40; ++block) blocks.push_back({700 + block % 7 * 50, true});
    double all = 0;
    for (const UpdateLoad& block : blocks) all += static_cast<double>(block.elements);
    std::vector<int> devices = share_updates(blocks, share, 3);
    int64_t least = INT64_MAX, most = 0, sum = 0;
    for (int device = 0; device < 3; ++device) {
      int64_t elements = elements_of(blocks, devices, device);
      least = std::min(least, elements);
      most = std::max(most, elements);
      sum += elements;
    }
    EXPECT_NEAR(static_cast<double>(sum), share * all, 2500) << share;
    EXPECT_LE(most - least, 5000) << share;
  }
}

}  // namespace
}  // namespace stagecoach
