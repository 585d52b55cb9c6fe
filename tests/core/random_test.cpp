#include "core/random.h"

#include <cmath>
#include <gtest/gtest.h>
#include <set>

namespace stagecoach {
namespace {

using Words = std::array<uint32_t, 4>;

TEST(Random, PhiloxKnownAnswers) {
  // kat_vectors of the Random123 distribution, philox4x32 with 10 rounds.
  EXPECT_EQ(philox_4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox_4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox_4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, WordsAndBlocksAreTheSameStream) {
  RandomKey key{7, 1, 2, 3, 4};
  for (uint64_t block = 0; block < 16; ++block) {
    Words words = random_words(key, block);
    for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(random_word(key, 4 * block + i), words[i]);
  }
}

TEST(Random, EveryFieldOfTheKeyNamesAnotherStream) {
  std::set<Words> seen;
  for (const RandomKey& key :
       {RandomKey{}, RandomKey{1, 0, 0, 0, 0}, RandomKey{uint64_t{1} << 32, 0, 0, 0, 0},
        RandomKey{0, 1, 0, 0, 0}, RandomKey{0, 0, 1, 0, 0}, RandomKey{0, 0, 0, 1, 0},
        RandomKey{0, 0, 0, 0, 1}}) {
    seen.insert(random_words(key, 0));
    seen.insert(random_words(key, uint64_t{1} << 32));
  }
  EXPECT_EQ(seen.size(), 14u);
}

TEST(Random, UniformAndNormalHaveTheirMoments) {
  RandomKey key{42, 0, 0, 0, 0};
  constexpr int kCount = 20000;
  double uniform_sum = 0, normal_sum = 0, normal_squares = 0;
  for (uint64_t i = 0; i < kCount; ++i) {
    double uniform = random_uniform(key, i);
    ASSERT_GE(uniform, 0.0);
    ASSERT_LT(uniform, 1.0);
    uniform_sum += uniform;
    double normal = random_normal(key, i);
    ASSERT_TRUE(std::isfinite(normal));
    normal_sum += normal;
    normal_squares += normal * normal;
  }
  EXPECT_NEAR(uniform_sum / kCount, 0.5, 0.01);
  EXPECT_NEAR(normal_sum / kCount, 0.0, 0.03);
  EXPECT_NEAR(normal_squares / kCount, 1.0, 0.05);
}

TEST(Random, DropoutDropsItsShare) {
  EXPECT_EQ(dropout_threshold(0.0f), 0u);
  EXPECT_EQ(dropout_threshold(0.5f), 0x80000000u);
  uint32_t threshold = dropout_threshold(0.25f);
  int dropped = 0;
  for (uint64_t i = 0; i < 10000; ++i) dropped += random_word({1, 2, 3, 4, 5}, i) < threshold;
  EXPECT_NEAR(dropped, 2500, 200);
}

}  // namespace
}  // namespace stagecoach
