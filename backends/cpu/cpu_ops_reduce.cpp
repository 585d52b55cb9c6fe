#include <algorithm>
#include <cstring>

#include "backends/cpu/cpu_op_families.h"
#include "backends/cpu/cpu_tensor.h"
#include "hal/square_sum.h"

namespace stagecoach {

namespace {

constexpr int64_t kBlock = 256;

/// Sum of squares of elements [first, end), a piece.
double sum_piece(const TensorView& in, int64_t first, int64_t end) {
  float converted[kBlock];
  SquareLanes lanes = {};
  for (int64_t offset = first; offset < end; offset += kBlock) {
    int64_t count = std::min(kBlock, end - offset);
    const float* values = read_floats(in, offset, count, converted);
    int64_t whole = count / kSquareLanes * kSquareLanes;
    for (int64_t k = 0; k < whole; k += kSquareLanes) {
      // The square of an fp32 is exact in fp64, so fusing it into the addition changes no bit.
      for (int64_t lane = 0; lane < kSquareLanes; ++lane) {
        double value = static_cast<double>(values[k + lane]);
        lanes[static_cast<size_t>(lane)] += value * value;
      }
    }
    for (int64_t k = whole; k < count; ++k) {
      double value = static_cast<double>(values[k]);
      lanes[static_cast<size_t>(k - whole)] += value * value;
    }
  }
  return add_square_lanes(lanes);
}

}  // namespace

Status cpu_sum_of_squares(const OpCall& call, TaskPool& pool) {
  const TensorView& in = call.inputs[0];
  int64_t count = in.element_count();
  int64_t pieces = divide_up(count, kSquarePieceElements);
  ScratchFrame frame;
  double* sums = frame.doubles(pieces);
  for_tiles(pool, pieces, 1, [&](int64_t piece, int64_t) {
    int64_t first = piece * kSquarePieceElements;
    sums[piece] = sum_piece(in, first, std::min(count, first + kSquarePieceElements));
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
