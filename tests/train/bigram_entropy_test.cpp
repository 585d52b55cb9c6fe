#include "train/bigram_entropy.h"

#include <cmath>
#include <gtest/gtest.h>

namespace stagecoach {
namespace {

std::vector<TokenPair> pairs_of(const std::vector<int32_t>& tokens) {
  std::vector<TokenPair> pairs;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) pairs.emplace_back(tokens[i], tokens[i + 1]);
  return pairs;
}

TEST(BigramEntropy, MatchesHandCounts) {
  // "abab…": each letter is always followed by the other.
  std::vector<int32_t> periodic;
  for (int i = 0; i < 100; ++i) periodic.push_back(i % 2);
  EXPECT_NEAR(bigram_entropy(pairs_of(periodic)), 0.0, 1e-12);
  // 0 0 1 0 1: after 0 come 0, 1, 1; after 1 comes 0. H = (3/4) * entropy(1/3, 2/3).
  std::vector<int32_t> mixed = {0, 0, 1, 0, 1};
  double expected = 0.75 * (std::log(3.0) / 3 + 2 * std::log(1.5) / 3);
  EXPECT_NEAR(bigram_entropy(pairs_of(mixed)), expected, 1e-12);
  EXPECT_EQ(bigram_entropy({}), 0.0);
}

}  // namespace
}  // namespace stagecoach
