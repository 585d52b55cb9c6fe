#pragma once

#include "backends/gpu/kernels/random.gpu.h"

namespace stagecoach {

// Dropout of attention's probabilities: a bit for each that a lane holds.

/// Which probabilities are dropped, and what the others are multiplied by.
struct AttentionDropout {
  RandomStream stream;
  uint32_t threshold;
  float factor;
  int32_t drops;  ///< 0: nothing is drawn

  /// A bit for each of the four numbers of the block that holds `element`: whether it is kept.
  __device__ uint32_t block(int64_t element) const {
    RandomWords words = random_words(stream, static_cast<uint64_t>(element) / 4);
    uint32_t kept = 0;
    for (int i = 0; i < 4; ++i) kept |= (words.words[i] >= threshold ? 1u : 0u) << i;
    return kept;
  }
};

/// `bits` of the lane whose number differs by `mask`.
__device__ inline uint32_t exchange_bits(uint32_t bits, int mask) {
  return bits_of(shuffle_xor(float_of(bits), mask));
}

/// The four numbers of a block belong to lanes side by side. Where rows of probabilities are whole
/// blocks, each of these lanes draws what another does not, and they exchange.
__device__ inline bool rows_are_blocks(int64_t sequence) {
  return sequence % 4 == 0;
}

/// kept_of_keys where rows are blocks: of the four numbers of each 16 x 8 tile that a lane holds,
/// it draws the blocks of one, its neighbours by rows those of the others.
template <int Tiles>
__device__ inline uint32_t shared_kept_of_keys(const AttentionDropout& dropout, int64_t element,
                                               int64_t stride) {
  int place = static_cast<int>(threadIdx.x / 4 % 4);
  int64_t first = element + place % 2 * stride + place / 2 * 8;
  uint32_t drawn = 0;
#pragma unroll 1
  for (int n = 0; n < Tiles; ++n) drawn |= dropout.block(first + n * 8 * stride) << n * 4;
  uint32_t kept = 0;
  for (int other = 0; other < 4; ++other) {
    uint32_t bits = exchange_bits(drawn, other * 4);
    kept |= (bits >> place & 0x11111111u) << (place ^ other);
  }
  return kept;
}

/// kept_of_queries where rows are blocks: two lanes share a block, each draws those of a row.
template <int Tiles>
__device__ inline uint32_t shared_kept_of_queries(const AttentionDropout& dropout, int64_t element,
                                                  int64_t stride) {
  int place = static_cast<int>(threadIdx.x % 2);
  uint32_t drawn = 0;
#pragma unroll 1
  for (int n = 0; n < Tiles; ++n) {
    drawn |= dropout.block(element + place * 8 * stride + n * 8) << n * 4;
  }
  uint32_t exchanged = exchange_bits(drawn, 1);
  uint32_t upper = place == 0 ? drawn : exchanged;
  uint32_t lower = place == 0 ? exchanged : drawn;
  return (upper >> place * 2 & 0x33333333u) | (lower >> place * 2 & 0x33333333u) << 2;
}

/// Bit 0: probability number `element` is kept; bit 1: the next.
__device__ inline uint32_t kept_pair(const AttentionDropout& dropout, int64_t element) {
  uint64_t index = static_cast<uint64_t>(element);
  RandomWords words = random_words(dropout.stream, index / 4);
  int place = static_cast<int>(index % 4);
  uint32_t first = word_of(words, place);
  if (place == 3) words = random_words(dropout.stream, index / 4 + 1);
  uint32_t second = word_of(words, (place + 1) % 4);
  return (first >= dropout.threshold ? 1u : 0u) | (second >= dropout.threshold ? 2u : 0u);
}

/// The bits of kept probabilities where a lane's rows are keys. `element` is the number of the
/// first, `stride` the distance between queries; `whole_blocks`: rows_are_blocks.
template <int Tiles>
__device__ inline uint32_t kept_of_keys(const AttentionDropout& dropout, int64_t element,
                                        int64_t stride, bool whole_blocks) {
  if (whole_blocks) return shared_kept_of_keys<Tiles>(dropout, element, stride);
  uint32_t kept = 0;
#pragma unroll 1
  for (int i = 0; i < 4 * Tiles; ++i) {
    uint64_t index = static_cast<uint64_t>(element + (i / 4 * 8 + i % 2) * stride + i % 4 / 2 * 8);
    uint32_t word = word_of(random_words(dropout.stream, index / 4), static_cast<int>(index % 4));
    kept |= (word >= dropout.threshold ? 1u : 0u) << i;
  }
  return kept;
}

/// scores times dropout's factors, of which `kept` has a bit for each number a lane holds.
template <int Tiles>
__device__ inline void drop_scores(float (&scores)[1][Tiles][4], uint32_t kept, float factor) {
#pragma unroll
  for (int n = 0; n < Tiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[0][n][i] *= (kept >> (n * 4 + i) & 1u) != 0 ? factor : 0.0f;
  }
}

/// The bits where a lane's rows are queries. `element` is the number of its first probability,
/// `stride` the distance between queries.
template <int Tiles>
__device__ inline uint32_t kept_of_queries(const AttentionDropout& dropout, int64_t element,
                                           int64_t stride, bool whole_blocks) {
  if (whole_blocks) return shared_kept_of_queries<Tiles>(dropout, element, stride);
  uint32_t kept = 0;
#pragma unroll 1
  for (int pair = 0; pair < 2 * Tiles; ++pair) {
    int64_t first = element + pair % 2 * 8 * stride + pair / 2 * 8;
    kept |= kept_pair(dropout, first) << pair * 2;
  }
  return kept;
}

}  // namespace stagecoach
