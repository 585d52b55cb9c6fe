#include <cstring>

#include "backends/cpu/cpu_op_families.h"
#include "backends/cpu/cpu_tensor.h"

namespace stagecoach {

namespace {

/// Length of a piece of sum_of_squares; part of what the operation means.
constexpr int64_t kPiece = 64 * 1024;
/// Pieces summed side by side: a piece's additions wait for each other, those of others need not.
constexpr int64_t kTogether = 4;
constexpr int64_t kBlock = 256;

/// sums[i] = sum of squares of piece `first_piece` + i, for `Count` whole pieces.
template <int Count>
void sum_pieces(const TensorView& in, int64_t first_piece, double* sums) {
  float converted[Count][kBlock];
  const float* values[Count];
  double totals[Count] = {};
  for (int64_t offset = 0; offset < kPiece; offset += kBlock) {
    for (int i = 0; i < Count; ++i) {
      values[i] = read_floats(in, (first_piece + i) * kPiece + offset, kBlock, converted[i]);
    }
    for (int64_t k = 0; k < kBlock; ++k) {
      // The square of an fp32 is exact in fp64, so fusing it into the addition changes no bit.
      for (int i = 0; i < Count; ++i) {
        double value = static_cast<double>(values[i][k]);
        totals[i] += value * value;
      }
    }
  }
  std::copy_n(totals, Count, sums);
}

double sum_range(const TensorView& in, int64_t first, int64_t end) {
  float converted[kBlock];
  double total = 0.0;
  for (int64_t offset = first; offset < end; offset += kBlock) {
    int64_t count = std::min(kBlock, end - offset);
    const float* values = read_floats(in, offset, count, converted);
    for (int64_t k = 0; k < count; ++k) {
      double value = static_cast<double>(values[k]);
      total += value * value;
    }
  }
  return total;
}

}  // namespace

Status cpu_sum_of_squares(const OpCall& call, TaskPool& pool) {
  const TensorView& in = call.inputs[0];
  int64_t count = in.element_count();
  int64_t whole = count / kPiece;
  int64_t pieces = divide_up(count, kPiece);
  ScratchFrame frame;
  double* sums = frame.doubles(pieces);
  for_tiles(pool, pieces, kTogether, [&](int64_t first, int64_t end) {
    if (first + kTogether <= whole) return sum_pieces<kTogether>(in, first, sums + first);
    for (int64_t piece = first; piece < end; ++piece) {
      sums[piece] = sum_range(in, piece * kPiece, std::min(count, (piece + 1) * kPiece));
    }
  });
  double total = 0.0;
  for (int64_t piece = 0; piece < pieces; ++piece) total += sums[piece];
  *typed_data<double>(call.outputs[0]) = total;
  return Status::ok();
}

Status cpu_checksum(const OpCall& call, TaskPool&) {
  constexpr uint64_t kPrime = 0x100000001b3u;
  const TensorView& in = call.inputs[0];
  const std::byte* bytes = tensor_data(in);
  uint64_t hash = 0xcbf29ce484222325u;
  // Each word's step needs the one before it: this cannot be shared out.
  for (ByteCount offset = 0; offset < in.size_bytes(); offset += 4) {
    uint32_t word = 0;
    std::memcpy(&word, bytes + offset, sizeof(word));
    hash = hash * kPrime ^ word;
  }
  *typed_data<uint64_t>(call.outputs[0]) = hash;
  return Status::ok();
}

}  // namespace stagecoach
