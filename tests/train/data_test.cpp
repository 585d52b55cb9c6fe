#include "train/data.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <set>

#include "core/file.h"
#include "tests/core/temporary_folder.h"

namespace stagecoach {
namespace {

using testing::HasSubstr;

class Data : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& content) {
    std::string path = folder_.file(name);
    Status status = write_file_atomically(path, content);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    return path;
  }
  std::vector<int32_t> tokens(const std::string& content) {
    Result<TokenData> data = read_byte_data({file("t.txt", content)}, 257, 1);
    EXPECT_TRUE(data.is_ok()) << data.status().to_string();
    return data.is_ok() ? data->tokens : std::vector<int32_t>{};
  }
  std::string refusal(const std::string& content, int64_t sequence) {
    Result<TokenData> data = read_byte_data({file("t.txt", content)}, 256, sequence);
    return data.is_ok() ? "accepted" : data.status().message();
  }
  TemporaryFolder folder_;
};

TEST_F(Data, BytesAreIdsAndFilesAreSeparated) {
  std::string first = file("a", std::string("a\xff\0z", 4));
  std::string second = file("b", "bc");
  Result<TokenData> with = read_byte_data({first, second}, 257, 2);
  ASSERT_TRUE(with.is_ok());
  EXPECT_EQ(with->tokens, (std::vector<int32_t>{'a', 255, 0, 'z', kByteSeparator, 'b', 'c'}));
  EXPECT_EQ(with->source_bytes, 6);
  EXPECT_EQ(with->digest.size(), 64u);
  Result<TokenData> without = read_byte_data({first, second}, 256, 2);
  ASSERT_TRUE(without.is_ok());
  EXPECT_EQ(without->tokens, (std::vector<int32_t>{'a', 255, 0, 'z', 'b', 'c'}));
  EXPECT_NE(without->digest, with->digest);
}

// Field report 73: what an editor adds is not learned.
TEST_F(Data, ByteOrderMarkAndCarriageReturnsLeaveTheSameTokens) {
  std::vector<int32_t> plain = tokens("one\ntwo\nthree\n");
  EXPECT_EQ(tokens("one\r\ntwo\r\nthree\r\n"), plain);
  EXPECT_EQ(tokens("\xef\xbb\xbfone\r\ntwo\r\nthree\r\n"), plain);
  EXPECT_EQ(tokens("a\rb"), (std::vector<int32_t>{'a', '\r', 'b'}));
}

TEST_F(Data, RefusesSixteenBitTextByName) {
  std::string little("\xff\xfeh\0i\0", 6), big("\xfe\xff\0h\0i", 6), bare("h\0i\0 \0t\0", 8);
  for (const std::string& text : {little, big, bare}) {
    EXPECT_THAT(refusal(text, 1), HasSubstr("UTF-16"));
    EXPECT_THAT(refusal(text, 1), HasSubstr("t.txt"));
  }
}

// Field report 72: degenerate sizes are refused with tokens found and needed, or train.
TEST_F(Data, RefusesTooShortDataWithTokensFoundAndNeeded) {
  EXPECT_THAT(refusal("", 4), HasSubstr("t.txt' is empty"));
  EXPECT_THAT(refusal("\xef\xbb\xbf", 4), HasSubstr("t.txt' is empty"));
  EXPECT_THAT(refusal("a", 4), HasSubstr("holds 1 tokens; one sequence of 4 and its next token "
                                         "need 5"));
  EXPECT_THAT(refusal("abc", 4), HasSubstr("holds 3 tokens"));
  EXPECT_THAT(refusal("abcd", 4), HasSubstr("holds 4 tokens"));
  EXPECT_EQ(refusal("abcde", 4), "accepted");
}

TEST_F(Data, RefusesUnreadableFilesAndSmallVocabularies) {
  Result<TokenData> missing = read_byte_data({folder_.file("none.txt")}, 256, 4);
  EXPECT_THAT(missing.status().message(), HasSubstr("none.txt"));
  Result<TokenData> is_folder = read_byte_data({folder_.path()}, 256, 4);
  EXPECT_THAT(is_folder.status().message(), HasSubstr(folder_.path()));
  Result<TokenData> small = read_byte_data({file("a", "abcdef")}, 255, 4);
  EXPECT_THAT(small.status().message(), HasSubstr("vocabulary is 255"));
  EXPECT_FALSE(read_byte_data({}, 256, 4).is_ok());
  std::string good = file("a", "abcdef"), empty = file("e", "");
  EXPECT_THAT(read_byte_data({good, empty}, 256, 4).status().message(), HasSubstr("/e' is empty"));
}

TokenData counting(int64_t count) {
  TokenData data;
  data.tokens.resize(static_cast<size_t>(count));
  std::iota(data.tokens.begin(), data.tokens.end(), 0);
  return data;
}

TEST_F(Data, AnEpochVisitsEveryWindowOnceInItsOwnOrder) {
  for (int64_t windows : {1, 2, 3, 5, 16, 17, 100, 257}) {
    TokenData data = counting(windows * 4 + 1);
    BatchSampler sampler(data, 4, 1, 9);
    EXPECT_EQ(sampler.windows(), windows);
    EXPECT_EQ(sampler.iterations_per_epoch(), windows);
    TokenBatch batch;
    std::vector<std::vector<int32_t>> epochs(2);
    for (int64_t i = 0; i < 2 * windows; ++i) {
      sampler.fill(i, batch);
      epochs[static_cast<size_t>(i / windows)].push_back(batch.inputs[0]);
    }
    for (const std::vector<int32_t>& epoch : epochs) {
      EXPECT_EQ(std::set<int32_t>(epoch.begin(), epoch.end()).size(), static_cast<size_t>(windows));
    }
    if (windows >= 16) {
      EXPECT_NE(epochs[0], epochs[1]);
      EXPECT_FALSE(std::is_sorted(epochs[0].begin(), epochs[0].end()));
    }
  }
}

TEST_F(Data, BatchesArePureFunctionsOfSeedAndIteration) {
  TokenData data = counting(1000);
  BatchSampler first(data, 8, 3, 1), same(data, 8, 3, 1), other(data, 8, 3, 2);
  TokenBatch a, b, c;
  first.fill(0, a);
  first.fill(17, a);
  same.fill(17, b);
  other.fill(17, c);
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_NE(a.inputs, c.inputs);
  EXPECT_EQ(a.sequences, 3);
  for (size_t i = 0; i < a.inputs.size(); ++i) EXPECT_EQ(a.labels[i], a.inputs[i] + 1);
}

TEST_F(Data, FewerWindowsThanABatchSpanEpochs) {
  TokenData data = counting(9);  // two windows of 4
  BatchSampler sampler(data, 4, 5, 1);
  EXPECT_EQ(sampler.iterations_per_epoch(), 1);
  TokenBatch batch;
  sampler.fill(0, batch);
  std::vector<int> seen(2, 0);
  for (int64_t i = 0; i < 5; ++i) ++seen[static_cast<size_t>(batch.inputs[i * 4] / 4)];
  EXPECT_GE(seen[0], 2);
  EXPECT_GE(seen[1], 2);
}

TEST_F(Data, BigramEntropyMatchesHandCounts) {
  // "abab…": each letter is always followed by the other.
  std::vector<int32_t> periodic;
  for (int i = 0; i < 100; ++i) periodic.push_back(i % 2);
  EXPECT_NEAR(bigram_entropy(periodic), 0.0, 1e-12);
  // 0 0 1 0 1: after 0 come 0, 1, 1; after 1 comes 0. H = (3/4) * entropy(1/3, 2/3).
  std::vector<int32_t> mixed = {0, 0, 1, 0, 1};
  double expected = 0.75 * (std::log(3.0) / 3 + 2 * std::log(1.5) / 3);
  EXPECT_NEAR(bigram_entropy(mixed), expected, 1e-12);
  EXPECT_EQ(bigram_entropy({}), 0.0);
}

}  // namespace
}  // namespace stagecoach
