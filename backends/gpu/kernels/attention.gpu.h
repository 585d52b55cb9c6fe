#pragma once

#include "backends/gpu/kernels/attention_tiles.h"
#include "backends/gpu/kernels/random.gpu.h"
#include "backends/gpu/kernels/tile_product.gpu.h"

namespace stagecoach {

/// Numbers of an attention call; lengths in elements.
struct AttentionSizes {
  int64_t sequences;
  int64_t sequence;
  int64_t heads;
  int64_t kv_heads;
  int32_t dim;
  float scale;

  __device__ int64_t qkv_width() const { return (heads + 2 * kv_heads) * dim; }
  __device__ int64_t out_width() const { return heads * dim; }
  __device__ int64_t key_column(int64_t kv_head) const { return (heads + kv_head) * dim; }
  __device__ int64_t value_column(int64_t kv_head) const {
    return (heads + kv_heads + kv_head) * dim;
  }
};

struct AttentionDropout {
  RandomStream stream;
  uint32_t threshold;
  float factor;
  int32_t drops;  ///< 0: nothing is drawn
};

/// Dimensions of one kernel: Rows queries by Rows keys, heads padded to Dim columns with zeros.
template <typename T, int DimColumns, int TileRows>
struct AttentionTile {
  static constexpr int kDim = DimColumns;
  static constexpr int kRows = TileRows;
  static constexpr int kPad = 16 / static_cast<int>(sizeof(T));
  static constexpr int kStride = kDim + kPad;
  static constexpr int kScoreStride = kRows + kPad;
  static constexpr int kThreads = kRows / 16 * kLanes;
  static constexpr int kElements = kRows * kStride;
  static constexpr int kScoreTiles = kRows / 8;
  static constexpr int kSlice = stagecoach::attention_slice_columns(kDim);
};

/// Copies kRows lines of `dim` columns from `source` (lines `width` apart, `valid` of them) to
/// shared memory; the rest becomes zeros.
template <typename Tile, typename T>
__device__ inline void load_head(T* shared, const T* source, int64_t width, int64_t valid, int dim,
                                 bool aligned) {
  constexpr int kChunk = Tile::kPad;
  constexpr int kPerLine = Tile::kDim / kChunk;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kRows * kPerLine; i += Tile::kThreads) {
    int line = i / kPerLine;
    int column = i % kPerLine * kChunk;
    union Chunk {
      Bytes16 bytes;
      T elements[kChunk];
      __device__ Chunk() : bytes{} {}
    } chunk;
    const T* from = source + line * width + column;
    if (line < valid && aligned && column < dim) {
      chunk.bytes = *reinterpret_cast<const Bytes16*>(from);
    } else if (line < valid) {
#pragma unroll
      for (int k = 0; k < kChunk; ++k) {
        if (column + k < dim) chunk.elements[k] = from[k];
      }
    }
    *reinterpret_cast<Bytes16*>(shared + line * Tile::kStride + column) = chunk.bytes;
  }
}

/// Whether heads of `dim` can be read 16 bytes at a time.
template <typename T, typename... Pointers>
__device__ inline bool heads_aligned(int dim, Pointers... pointers) {
  return dim % (16 / static_cast<int>(sizeof(T))) == 0 && all_aligned(pointers...);
}

/// Dropout's factor of probabilities number `element` and the next.
__device__ inline void keep_pair(const AttentionDropout& dropout, int64_t element,
                                 float (&keep)[2]) {
  uint64_t index = static_cast<uint64_t>(element);
  RandomWords words = random_words(dropout.stream, index / 4);
  int place = static_cast<int>(index % 4);
  uint32_t first = word_of(words, place);
  if (place == 3) words = random_words(dropout.stream, index / 4 + 1);
  uint32_t second = word_of(words, (place + 1) % 4);
  keep[0] = first >= dropout.threshold ? dropout.factor : 0.0f;
  keep[1] = second >= dropout.threshold ? dropout.factor : 0.0f;
}

__device__ inline float keep_one(const AttentionDropout& dropout, int64_t element) {
  uint64_t index = static_cast<uint64_t>(element);
  uint32_t word = word_of(random_words(dropout.stream, index / 4), static_cast<int>(index % 4));
  return word >= dropout.threshold ? dropout.factor : 0.0f;
}

/// Writes a group's 16 x kRows scores, rounded, to its 16 lines of shared memory.
template <typename Tile, typename T>
__device__ inline void put_scores(T* lines, const float (&scores)[1][Tile::kScoreTiles][4]) {
  int row = static_cast<int>(threadIdx.x % kLanes / 4);
  int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
  for (int n = 0; n < Tile::kScoreTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      from_float(scores[0][n][i],
                 &lines[(row + i / 2 * 8) * Tile::kScoreStride + n * 8 + column + i % 2]);
    }
  }
  lanes_sync();
}

/// Writes a group's 16 lines of results, `valid` of them, `columns` wide, times a factor a row.
template <typename T, int Tiles>
__device__ inline void write_head(T* out, int64_t width, int64_t valid, int columns,
                                  const float (&sums)[1][Tiles][4], float upper, float lower) {
  int row = static_cast<int>(threadIdx.x % kLanes / 4);
  int column = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
  for (int n = 0; n < Tiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      int r = row + i / 2 * 8;
      int c = n * 8 + column + i % 2;
      if (r >= valid || c >= columns) continue;
      from_float(sums[0][n][i] * (i < 2 ? upper : lower), &out[r * width + c]);
    }
  }
}

/// Instantiates KERNEL(T, suffix, padded dim) for all.
#define STAGECOACH_FOR_ATTENTION(KERNEL) \
  KERNEL(float, fp32, 64)                \
  KERNEL(float, fp32, 128)               \
  KERNEL(float, fp32, 256)               \
  KERNEL(BF16, bf16, 64)                 \
  KERNEL(BF16, bf16, 128)                \
  KERNEL(BF16, bf16, 256)                \
  KERNEL(F16, fp16, 64)                  \
  KERNEL(F16, fp16, 128)                 \
  KERNEL(F16, fp16, 256)

#if defined(__HIP__)
constexpr bool kIsHip = true;
#else
constexpr bool kIsHip = false;
#endif

}  // namespace stagecoach
