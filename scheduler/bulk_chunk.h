#pragma once

#include <algorithm>

#include "core/bytes.h"

namespace stagecoach {

/// How much of a bulk copy may stand between an urgent one and the copy engine: what the link moves
/// in 0.15 ms, from 1 to 32 MiB; 8 MiB where its rate (`link_bytes_per_s`, of one direction) is 0,
/// which is unknown. On an H200 (55 GB/s) that is 8 MiB: urgent copies take 0.24 ms and the link
/// keeps 97 % of its rate; larger chunks keep more and let urgent copies wait longer.
inline ByteCount bulk_chunk_bytes(double link_bytes_per_s) {
  constexpr double kChunkTimeS = 0.15e-3, kLeastMib = 1, kMostMib = 32;
  constexpr ByteCount kUnknownLink = 8 * kMiB;
  if (link_bytes_per_s <= 0) return kUnknownLink;
  double mib = link_bytes_per_s * kChunkTimeS / static_cast<double>(kMiB);
  return static_cast<ByteCount>(std::clamp(mib + 0.5, kLeastMib, kMostMib)) * kMiB;
}

/// A copy of `total` bytes in pieces of at most `chunk` (above 0) and of about the same size, since
/// a short rest would cost what a whole chunk costs to begin.
class BulkPieces {
 public:
  BulkPieces(ByteCount total, ByteCount chunk) : total_(total) {
    constexpr ByteCount kPage = 4096;
    ByteCount count = std::max<ByteCount>(1, (total + chunk - 1) / chunk);
    ByteCount even = (total + count - 1) / count;
    size_ = std::max<ByteCount>(1, std::min(chunk, (even + kPage - 1) / kPage * kPage));
  }

  int64_t count() const { return (total_ + size_ - 1) / size_; }
  ByteCount offset(int64_t piece) const { return piece * size_; }
  ByteCount size(int64_t piece) const { return std::min(size_, total_ - offset(piece)); }

 private:
  ByteCount total_, size_;
};

}  // namespace stagecoach
