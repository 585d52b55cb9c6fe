// out = alpha * op(a) * op(b) (+ bias) (+ out), tiles of 128 x 128. K is never split.

#include "backends/gpu/kernels/tile_product.gpu.h"

namespace stagecoach::matmul_kernels {

constexpr int kTile = 128;
constexpr int kThreads = 256;
/// A group of lanes computes 64 x 32: two groups down, four across.
constexpr int kRowTiles = 4;
constexpr int kColumnTiles = 4;
/// Tiles of rows that share columns of b while these are in the cache.
constexpr int64_t kRaster = 8;
/// Terms of an fp32 result that are summed before they join the rest: rounding errors grow with the
/// number of terms.
constexpr int64_t kSegment = 4096;

template <typename T>
struct Sizes {
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));  ///< elements of 16 bytes
  static constexpr int kDepth = 64 / static_cast<int>(sizeof(T));
  static constexpr int kChunks = kTile * kDepth / kChunk / kThreads;  ///< of each thread
  static constexpr int kShared = kTile * (kDepth + kChunk);           ///< holds either layout
};

/// What an operand looks like in memory: `rows` lines of `columns` contiguous elements.
template <typename T>
struct Source {
  const T* data;
  int64_t stride;
  int64_t rows;
  int64_t columns;
  bool aligned;  ///< every line starts at a multiple of 16 bytes
};

/// A tile of Lines x Columns elements on its way from memory to shared memory.
template <typename T, int Lines, int Columns>
struct TileCopy {
  static constexpr int kChunk = Sizes<T>::kChunk;
  static constexpr int kChunks = Sizes<T>::kChunks;
  static constexpr int kPerLine = Columns / kChunk;
  static constexpr int kStride = Columns + kChunk;

  union Chunk {
    Bytes16 bytes;
    T elements[kChunk];
    __device__ Chunk() : bytes{} {}
  };
  Chunk chunks[kChunks];

  __device__ void fetch(const Source<T>& source, int64_t first_line, int64_t first_column) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      int index = i * kThreads + static_cast<int>(threadIdx.x);
      int64_t line = first_line + index / kPerLine;
      int64_t column = first_column + index % kPerLine * kChunk;
      const T* from = source.data + line * source.stride + column;
      chunks[i].bytes = Bytes16{};
      if (line >= source.rows || column >= source.columns) continue;
      if (source.aligned && column + kChunk <= source.columns) {
        chunks[i].bytes = *reinterpret_cast<const Bytes16*>(from);
        continue;
      }
#pragma unroll
      for (int k = 0; k < kChunk; ++k) {
        if (column + k < source.columns) chunks[i].elements[k] = from[k];
      }
    }
  }

  __device__ void put(T* shared) const {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      int index = i * kThreads + static_cast<int>(threadIdx.x);
      T* to = shared + index / kPerLine * kStride + index % kPerLine * kChunk;
      *reinterpret_cast<Bytes16*>(to) = chunks[i].bytes;
    }
  }
};

/// An operand whose other side than K starts at `first`; DepthFirst: K is contiguous.
template <typename T, bool DepthFirst>
struct Operand {
  static constexpr int kDepth = Sizes<T>::kDepth;
  using Copy = TileCopy<T, DepthFirst ? kTile : kDepth, DepthFirst ? kDepth : kTile>;
  Source<T> source;
  int64_t first;
  Copy copy;

  __device__ Operand(const T* data, int64_t stride, int64_t length, int64_t depth, int64_t start)
      : source{data, stride, DepthFirst ? length : depth, DepthFirst ? depth : length,
               stride % Sizes<T>::kChunk == 0 && all_aligned(data)},
        first(start) {}

  __device__ void fetch(int64_t k) {
    if constexpr (DepthFirst) {
      copy.fetch(source, first, k);
    } else {
      copy.fetch(source, k, first);
    }
  }
  /// The part of a tile in shared memory from `offset` on the other side than K.
  __device__ static TileOperand<T, DepthFirst> part(const T* shared, int offset) {
    return {shared + (DepthFirst ? offset * Copy::kStride : offset), Copy::kStride};
  }
};

struct Result {
  void* out;
  int64_t stride;
  int64_t rows;
  int64_t columns;
  float alpha;
  bool is_fp32;
  bool add_to;
};

template <typename T, typename Out>
__device__ inline void write_result(const float (&sums)[kRowTiles][kColumnTiles][4],
                                    const Result& result, const T* bias, int64_t first_row,
                                    int64_t first_column) {
  int64_t row = first_row + threadIdx.x % kLanes / 4;
  int64_t column = first_column + threadIdx.x % 4 * 2;
  Out* out = static_cast<Out*>(result.out);
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        int64_t r = row + m * 16 + i / 2 * 8;
        int64_t c = column + n * 8 + i % 2;
        if (r >= result.rows || c >= result.columns) continue;
        float value = result.alpha * sums[m][n][i];
        if (bias != nullptr) value += to_float(bias[c]);
        Out* target = out + r * result.stride + c;
        if (result.add_to) value += to_float(*target);
        from_float(value, target);
      }
    }
  }
}

__device__ inline int64_t tile_count(int64_t length) {
  return (length + kTile - 1) / kTile;
}

/// Tile number `index` in an order that reuses what is in the cache.
__device__ inline void locate_tile(int64_t index, int64_t row_tiles, int64_t column_tiles,
                                   int64_t* row, int64_t* column) {
  int64_t group = index / (kRaster * column_tiles);
  int64_t first = group * kRaster;
  int64_t height = row_tiles - first < kRaster ? row_tiles - first : kRaster;
  int64_t within = index - group * kRaster * column_tiles;
  *row = (first + within % height) * kTile;
  *column = within / height * kTile;
}

template <typename T, bool ADepthFirst, bool BDepthFirst>
__device__ inline void matmul(const Result& result, const T* a, int64_t a_stride, const T* b,
                              int64_t b_stride, const T* bias, int64_t depth) {
  constexpr int kDepth = Sizes<T>::kDepth;
  __shared__ __align__(16) T a_shared[2][Sizes<T>::kShared];
  __shared__ __align__(16) T b_shared[2][Sizes<T>::kShared];
  int64_t row = 0;
  int64_t column = 0;
  // Whole blocks leave here: a last launch may have fewer tiles than its grid.
  if (static_cast<int64_t>(blockIdx.x) >= tile_count(result.rows) * tile_count(result.columns)) {
    return;
  }
  locate_tile(blockIdx.x, tile_count(result.rows), tile_count(result.columns), &row, &column);
  using A = Operand<T, ADepthFirst>;
  using B = Operand<T, BDepthFirst>;
  A left(a, a_stride, result.rows, depth, row);
  B right(b, b_stride, result.columns, depth, column);
  int group = static_cast<int>(threadIdx.x / kLanes);
  int group_row = group / 4 * 64;
  int group_column = group % 4 * 32;
  left.fetch(0);
  right.fetch(0);
  int stage = 0;
  int64_t segment = result.is_fp32 ? kSegment : depth;
  for (int64_t start = 0; start < depth; start += segment) {
    float sums[kRowTiles][kColumnTiles][4] = {};
    int64_t end = depth - start < segment ? depth : start + segment;
    for (int64_t k = start; k < end; k += kDepth, stage ^= 1) {
      left.copy.put(a_shared[stage]);
      right.copy.put(b_shared[stage]);
      // One barrier a turn: what is overwritten now was last read before the barrier of the turn
      // before.
      __syncthreads();
      if (k + kDepth < depth) {
        left.fetch(k + kDepth);
        right.fetch(k + kDepth);
      }
      multiply_tiles<T>(sums, A::part(a_shared[stage], group_row),
                        B::part(b_shared[stage], group_column), kDepth);
    }
    Result part = result;
    part.add_to = result.add_to || start > 0;
    const T* offset = start > 0 ? nullptr : bias;
    if (result.is_fp32) {
      write_result<T, float>(sums, part, offset, row + group_row, column + group_column);
    } else {
      write_result<T, T>(sums, part, offset, row + group_row, column + group_column);
    }
  }
}

// m and k are what is left of rows and depth, of which one launch takes `most_m` and `most_k`.
// a is [M,K] where n, [K,M] where t; b is [K,N] where n, [N,K] where t.
#define STAGECOACH_MATMUL_FORM(T, NAME, FORM, A_DEPTH_FIRST, B_DEPTH_FIRST)                        \
  extern "C" __global__ void __launch_bounds__(kThreads, 2) matmul_##FORM##_##NAME(                \
      void* out, int64_t out_stride, const T* a, int64_t a_stride, const T* b, int64_t b_stride,   \
      const T* bias, int64_t m, int64_t n, int64_t k, int64_t most_m, int64_t most_k, float alpha, \
      int32_t out_is_fp32, int32_t add_to) {                                                       \
    int64_t rows = m < most_m ? m : most_m;                                                        \
    matmul<T, A_DEPTH_FIRST, B_DEPTH_FIRST>(                                                       \
        Result{out, out_stride, rows, n, alpha, out_is_fp32 != 0, add_to != 0}, a, a_stride, b,    \
        b_stride, bias, k < most_k ? k : most_k);                                                  \
  }
#define STAGECOACH_MATMUL(T, NAME)                  \
  STAGECOACH_MATMUL_FORM(T, NAME, nn, true, false)  \
  STAGECOACH_MATMUL_FORM(T, NAME, nt, true, true)   \
  STAGECOACH_MATMUL_FORM(T, NAME, tn, false, false) \
  STAGECOACH_MATMUL_FORM(T, NAME, tt, false, true)

STAGECOACH_FOR_STORAGE(STAGECOACH_MATMUL)

}  // namespace stagecoach::matmul_kernels
