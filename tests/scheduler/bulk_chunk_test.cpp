#include "scheduler/bulk_chunk.h"

#include <gtest/gtest.h>

namespace stagecoach {
namespace {

TEST(BulkChunk, IsWhatTheLinkMovesInAFewTenthsOfAMillisecond) {
  EXPECT_EQ(bulk_chunk_bytes(55.4e9), 8 * kMiB);
  EXPECT_EQ(bulk_chunk_bytes(26e9), 4 * kMiB);
  EXPECT_EQ(bulk_chunk_bytes(100e6), kMiB);
  EXPECT_EQ(bulk_chunk_bytes(900e9), 32 * kMiB);
  EXPECT_EQ(bulk_chunk_bytes(0), 8 * kMiB);
}

TEST(BulkPieces, AreEvenWholePagesAndCoverTheCopy) {
  for (ByteCount total : {1, 255, 4096, 4097, 1 << 20, 10 << 20, (64 << 20) + 12345}) {
    for (ByteCount chunk : {1 << 20, 8 << 20, 4096}) {
      BulkPieces pieces(total, chunk);
      ByteCount covered = 0, least = total;
      for (int64_t piece = 0; piece < pieces.count(); ++piece) {
        EXPECT_EQ(pieces.offset(piece), covered);
        EXPECT_GT(pieces.size(piece), 0);
        EXPECT_LE(pieces.size(piece), chunk);
        least = std::min(least, pieces.size(piece));
        covered += pieces.size(piece);
      }
      EXPECT_EQ(covered, total);
      // As few as there can be; all but the last are of one size, and the last is little shorter.
      EXPECT_EQ(pieces.count(), (total + chunk - 1) / chunk) << total << " in " << chunk;
      EXPECT_GE(least + 4096 * pieces.count(), pieces.size(0));
    }
  }
}

TEST(BulkPieces, OfNothingAreNone) {
  EXPECT_EQ(BulkPieces(0, kMiB).count(), 0);
}

}  // namespace
}  // namespace stagecoach
