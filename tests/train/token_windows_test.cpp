#include "train/token_windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <numeric>

#include "tests/train/token_file_image.h"

namespace stagecoach {
namespace {

using testing::HasSubstr;

TokenFileImage numbered(int64_t count, uint32_t first = 0) {
  TokenFileImage image;
  image.ids.resize(static_cast<size_t>(count));
  std::iota(image.ids.begin(), image.ids.end(), first);
  return image;
}

/// One sequence as it is trained on.
struct Row {
  std::vector<int32_t> inputs, labels;
};

std::vector<Row> rows_of(const TokenWindows& windows) {
  std::vector<Row> rows;
  for (int64_t i = 0; i < windows.count(); ++i) {
    Row row{std::vector<int32_t>(static_cast<size_t>(windows.sequence())), {}};
    row.labels = row.inputs;
    EXPECT_TRUE(windows.read(i, row.inputs.data(), row.labels.data()).is_ok());
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<Row> rows_of(const TokenData& data, int64_t sequence, bool keep_tail = false) {
  return rows_of(TokenWindows::create(data, sequence, keep_tail).value());
}

TEST(TokenWindows, StreamCutsAtEveryStrideAndLeavesTheTail) {
  TokenData data = data_of({numbered(11)}, Packing::kStream);
  std::vector<Row> rows = rows_of(data, 4);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].inputs, (std::vector<int32_t>{4, 5, 6, 7}));
  EXPECT_EQ(rows[1].labels, (std::vector<int32_t>{5, 6, 7, 8}));
  rows = rows_of(data, 4, true);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[2].inputs, (std::vector<int32_t>{8, 9, 0, 0}));
  EXPECT_EQ(rows[2].labels, (std::vector<int32_t>{9, 10, -1, -1}));
}

// Field report 79, by padding: no sequence holds two documents, so nothing can be seen across.
TEST(TokenWindows, PaddedSequencesHoldOneDocumentEach) {
  TokenFileImage first = numbered(12);
  first.documents = {0, 3, 4, 10};  // of 3, 1, 6 and 2 tokens
  TokenData data = data_of({first, numbered(3, 100)}, Packing::kPad);
  std::vector<Row> rows = rows_of(data, 4);
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[0].inputs, (std::vector<int32_t>{0, 1, 0, 0}));
  EXPECT_EQ(rows[0].labels, (std::vector<int32_t>{1, 2, -1, -1}));
  // A long one is cut into sequences that follow each other: every token but the first once.
  EXPECT_EQ(rows[1].inputs, (std::vector<int32_t>{4, 5, 6, 7}));
  EXPECT_EQ(rows[1].labels, (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(rows[2].inputs, (std::vector<int32_t>{8, 0, 0, 0}));
  EXPECT_EQ(rows[2].labels, (std::vector<int32_t>{9, -1, -1, -1}));
  EXPECT_EQ(rows[3].inputs, (std::vector<int32_t>{10, 0, 0, 0}));
  EXPECT_EQ(rows[4].inputs, (std::vector<int32_t>{100, 101, 0, 0}));
  EXPECT_EQ(rows[4].labels, (std::vector<int32_t>{101, 102, -1, -1}));
  TokenWindows windows = TokenWindows::create(data, 4, false).value();
  EXPECT_EQ(windows.cut_documents(), 1);
  EXPECT_EQ(windows.left_out(), 1);
  EXPECT_EQ(windows.first_left_out(), "'file 0' document 2");
}

TEST(TokenWindows, StreamedDocumentsFollowEachOtherButDoNotTellEachOther) {
  TokenFileImage first = numbered(6);
  first.documents = {0, 3};
  TokenData data = data_of({first, numbered(7, 100)}, Packing::kStream);
  std::vector<Row> rows = rows_of(data, 4);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].inputs, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(rows[0].labels, (std::vector<int32_t>{1, 2, -1, 4}));
  EXPECT_EQ(rows[1].inputs, (std::vector<int32_t>{4, 5, 100, 101}));
  EXPECT_EQ(rows[1].labels, (std::vector<int32_t>{5, -1, 101, 102}));
}

// Whatever the packing, every token that may be predicted is, once.
TEST(TokenWindows, EveryTargetIsTrainedOnOnce) {
  for (Packing packing : {Packing::kStream, Packing::kPad}) {
    for (int64_t sequence : {1, 2, 3, 5, 64}) {
      TokenFileImage image = numbered(60);
      image.documents = {0, 1, 2, 13, 14, 30};
      for (int i = 0; i < 60; ++i) image.mask.push_back(i % 7 != 3);
      TokenData data = data_of({image, numbered(20, 100)}, packing);
      std::map<int32_t, int> seen;
      for (const Row& row : rows_of(data, sequence, true)) {
        for (int32_t label : row.labels) ++seen[label];
      }
      seen.erase(-1);
      std::map<int32_t, int> expected;
      for (int32_t id = 0; id < 60; ++id) {
        bool starts = id == 0 || id == 1 || id == 2 || id == 13 || id == 14 || id == 30;
        if (id % 7 != 3 && !starts) expected[id] = 1;
      }
      for (int32_t id = 101; id < 120; ++id) expected[id] = 1;
      EXPECT_EQ(seen, expected) << sequence;
    }
  }
}

// Field report 35: a sequence without targets is left out and counted; data without any refused.
TEST(TokenWindows, MaskedSequencesAreLeftOutAndCounted) {
  TokenFileImage image = numbered(41);
  image.mask.assign(41, false);
  for (size_t i : {6u, 30u}) image.mask[i] = true;
  TokenData data = data_of({image}, Packing::kStream);
  TokenWindows windows = TokenWindows::create(data, 4, false).value();
  EXPECT_EQ(windows.count(), 2);
  EXPECT_EQ(windows.left_out(), 8);
  EXPECT_EQ(windows.at(0).first, 4);
  EXPECT_EQ(windows.at(1).first, 28);
  image.mask.assign(41, false);
  for (Packing packing : {Packing::kStream, Packing::kPad}) {
    TokenData masked = data_of({image}, packing);
    EXPECT_THAT(TokenWindows::create(masked, 4, false).status().message(),
                HasSubstr("none of 10 sequences holds anything to be predicted"));
  }
}

TEST(TokenWindows, OneShortDocumentIsEnoughToPad) {
  TokenData data = data_of({numbered(2)}, Packing::kPad);
  EXPECT_EQ(rows_of(data, 1024).size(), 1u);
  TokenData single = data_of({numbered(1)}, Packing::kPad);
  EXPECT_THAT(TokenWindows::create(single, 4, false).status().message(),
              HasSubstr("none of 1 sequences"));
}

}  // namespace
}  // namespace stagecoach
