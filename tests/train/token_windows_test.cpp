#include "train/token_windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <numeric>

#include "tests/train/token_file_image.h"
#include "train/document_packing.h"

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
  std::vector<int32_t> inputs, labels, starts;
};

std::vector<Row> rows_of(const TokenWindows& windows) {
  std::vector<Row> rows;
  for (int64_t i = 0; i < windows.count(); ++i) {
    Row row{std::vector<int32_t>(static_cast<size_t>(windows.sequence())), {}, {}};
    row.labels = row.starts = row.inputs;
    EXPECT_TRUE(windows.read(i, row.inputs.data(), row.labels.data(), row.starts.data()).is_ok());
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

// Field report 79, by attention: whole documents share sequences, each with its start.
TEST(TokenWindows, PackedSequencesHoldWholeDocuments) {
  TokenFileImage first = numbered(22);
  first.documents = {0, 3, 4, 10, 20};  // of 3, 1, 6, 10 and 2 tokens
  TokenData data = data_of({first, numbered(4, 100)}, Packing::kDocuments);
  TokenWindows windows = TokenWindows::create(data, 6, false).value();
  // Pieces of 2, 5, 6 and 3 (cut), 1 and 3: the longest first, each where the least room is left.
  std::vector<Row> rows = rows_of(windows);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(windows.piece_count(), 6);
  EXPECT_EQ(rows[0].inputs, (std::vector<int32_t>{0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(rows[0].labels, (std::vector<int32_t>{1, 2, -1, -1, -1, -1}));
  EXPECT_EQ(rows[0].starts, (std::vector<int32_t>{0, 0, 2, 2, 2, 2}));
  EXPECT_EQ(rows[1].inputs, (std::vector<int32_t>{4, 5, 6, 7, 8, 20}));
  EXPECT_EQ(rows[1].labels, (std::vector<int32_t>{5, 6, 7, 8, 9, 21}));
  EXPECT_EQ(rows[1].starts, (std::vector<int32_t>{0, 0, 0, 0, 0, 5}));
  EXPECT_EQ(rows[2].inputs, (std::vector<int32_t>{10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(rows[3].inputs, (std::vector<int32_t>{16, 17, 18, 100, 101, 102}));
  EXPECT_EQ(rows[3].labels, (std::vector<int32_t>{17, 18, 19, 101, 102, 103}));
  EXPECT_EQ(rows[3].starts, (std::vector<int32_t>{0, 0, 0, 3, 3, 3}));
  EXPECT_EQ(windows.cut_documents(), 1);
  EXPECT_EQ(windows.left_out(), 1);
  EXPECT_EQ(windows.first_left_out(), "'file 0' document 2");
}

// More documents than are packed at a time: none is lost, and sequences are nearly full.
TEST(TokenWindows, PackingManyDocumentsWastesLittle) {
  TokenFileImage image;
  int64_t documents = static_cast<int64_t>(TokenWindows::kPackedTogether) + 3000, pieces = 0;
  for (int64_t d = 0; d < documents; ++d) {
    image.documents.push_back(static_cast<int64_t>(image.ids.size()));
    int64_t length = 2 + d * 7919 % 97;
    pieces += length - 1;
    image.ids.insert(image.ids.end(), static_cast<size_t>(length), static_cast<uint32_t>(d % 1000));
  }
  TokenData data = data_of({image}, Packing::kDocuments);
  TokenWindows windows = TokenWindows::create(data, 256, false).value();
  EXPECT_EQ(windows.piece_count(), documents);
  int64_t held = 0;
  for (int64_t i = 0; i < windows.count(); ++i) {
    TokenWindow single;
    int64_t length = 0, last = -1;
    for (const TokenWindow& piece : windows.pieces(i, single)) {
      EXPECT_GT(piece.first, last);  // in the order of the data
      last = piece.first;
      length += piece.length;
    }
    ASSERT_LE(length, 256);
    held += length;
  }
  EXPECT_EQ(held, pieces);
  EXPECT_GT(static_cast<double>(held) / static_cast<double>(windows.count() * 256), 0.995);
}

TEST(DocumentPacking, EachPieceGoesWhereTheLeastRoomIsLeft) {
  EXPECT_EQ(pack_best_fit(std::vector<int64_t>{3, 5, 2, 4, 1}, 6),
            (std::vector<int64_t>{0, 1, 2, 2, 1}));
  EXPECT_EQ(pack_best_fit(std::vector<int64_t>{6, 6}, 6), (std::vector<int64_t>{0, 1}));
  EXPECT_TRUE(pack_best_fit({}, 6).empty());
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
  for (Packing packing : {Packing::kStream, Packing::kPad, Packing::kDocuments}) {
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
  TokenWindow single;
  EXPECT_EQ(windows.pieces(0, single)[0].first, 4);
  EXPECT_EQ(windows.pieces(1, single)[0].first, 28);
  image.mask.assign(41, false);
  for (Packing packing : {Packing::kStream, Packing::kPad, Packing::kDocuments}) {
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
