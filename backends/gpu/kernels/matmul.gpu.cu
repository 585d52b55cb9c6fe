// out = alpha * op(a) * op(b) (+ bias) (+ out), in tiles of 128 x 128, on matrix units 128 x 256. K
// is never split.

#include "backends/gpu/kernels/matmul_units.gpu.h"
#include "backends/gpu/kernels/tile_product.gpu.h"

namespace stagecoach::matmul_kernels {

constexpr MatmulShape kPlainShape = matmul_shape(false);
constexpr int kTile = kPlainShape.rows;
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

/// out = value (+ bias) (+ out), the sums after the first without bias and added.
template <typename T, typename Out>
__device__ inline void write_sum(Out* out, float sum, const Result& result, const T* bias,
                                 bool first) {
  float value = result.alpha * sum;
  if (first && bias != nullptr) value += to_float(*bias);
  if (result.add_to || !first) value += to_float(*out);
  from_float(value, out);
}

/// A group's sums, whose first is the result's at (first_row, first_column).
template <typename T, typename Out>
__device__ inline void write_sums(const float (&sums)[kRowTiles][kColumnTiles][4],
                                  const Result& result, const T* bias, int64_t first_row,
                                  int64_t first_column, bool first) {
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
        write_sum(out + r * result.stride + c, sums[m][n][i], result,
                  bias == nullptr ? nullptr : bias + c, first);
      }
    }
  }
}

#if STAGECOACH_MATRIX_UNITS
/// Four neighbours of a row. `wide`: rows start at multiples of four elements.
template <typename T, typename Out>
__device__ inline void write_four(const float4& sums, const Result& result, const T* bias,
                                  int64_t row, int64_t column, bool first, bool wide) {
  if (row >= result.rows || column >= result.columns) return;
  Out* out = static_cast<Out*>(result.out) + row * result.stride + column;
  struct alignas(4 * sizeof(Out)) Four {
    Out values[4];
  };
  const float four[4] = {sums.x, sums.y, sums.z, sums.w};
  wide = wide && column + 4 <= result.columns;
  bias = bias == nullptr ? nullptr : bias + column;
  if (wide) {
    Four pack{};
    if (result.add_to || !first) pack = *reinterpret_cast<const Four*>(out);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      write_sum(&pack.values[i], four[i], result, bias == nullptr ? nullptr : bias + i, first);
    }
    *reinterpret_cast<Four*>(out) = pack;
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (column + i >= result.columns) continue;
    write_sum(out + i, four[i], result, bias == nullptr ? nullptr : bias + i, first);
  }
}
#endif

__device__ inline int64_t tile_count(int64_t length, int tile) {
  return (length + tile - 1) / tile;
}

struct TilePosition {
  int64_t row, column;
};

/// Tile number `index` in an order that reuses what is in the cache.
__device__ inline TilePosition locate_tile(int64_t index, int64_t row_tiles, int64_t column_tiles,
                                           const MatmulShape& shape) {
  int64_t group = index / (kRaster * column_tiles);
  int64_t first = group * kRaster;
  int64_t height = row_tiles - first < kRaster ? row_tiles - first : kRaster;
  int64_t within = index - group * kRaster * column_tiles;
  return {(first + within % height) * shape.rows, within / height * shape.columns};
}

/// Tiles of K through registers and two places in shared memory.
template <typename T, bool ADepthFirst, bool BDepthFirst>
__device__ inline void multiply_plainly(const Result& result, const T* a, int64_t a_stride,
                                        const T* b, int64_t b_stride, const T* bias, int64_t depth,
                                        const TilePosition& tile) {
  constexpr int kDepth = Sizes<T>::kDepth;
  __shared__ __align__(16) T a_shared[2][Sizes<T>::kShared];
  __shared__ __align__(16) T b_shared[2][Sizes<T>::kShared];
  using A = Operand<T, ADepthFirst>;
  using B = Operand<T, BDepthFirst>;
  A left(a, a_stride, result.rows, depth, tile.row);
  B right(b, b_stride, result.columns, depth, tile.column);
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
    if (result.is_fp32) {
      write_sums<T, float>(sums, result, bias, tile.row + group_row, tile.column + group_column,
                           start == 0);
    } else {
      write_sums<T, T>(sums, result, bias, tile.row + group_row, tile.column + group_column,
                       start == 0);
    }
  }
}

template <typename T, bool ADepthFirst, bool BDepthFirst>
__device__ inline void matmul(const Result& result, const T* a, int64_t a_stride, const T* b,
                              int64_t b_stride, const T* bias, int64_t depth) {
  constexpr bool kUnits = kMatrixUnitShapes && sizeof(T) == 2;
  constexpr MatmulShape kShape = kUnits ? kUnitShape : kPlainShape;
  int64_t row_tiles = tile_count(result.rows, kShape.rows);
  int64_t column_tiles = tile_count(result.columns, kShape.columns);
  // Whole blocks leave here: a last launch may have fewer tiles than its grid.
  if (static_cast<int64_t>(blockIdx.x) >= row_tiles * column_tiles) return;
  TilePosition tile = locate_tile(blockIdx.x, row_tiles, column_tiles, kShape);
#if STAGECOACH_MATRIX_UNITS
  if constexpr (kUnits) {
    bool wide = result.stride % 4 == 0 && all_aligned(result.out);
    auto write = [&](int row, int column, const float4& sums, bool first) {
      if (result.is_fp32) {
        write_four<T, float>(sums, result, bias, tile.row + row, tile.column + column, first, wide);
      } else {
        write_four<T, T>(sums, result, bias, tile.row + row, tile.column + column, first, wide);
      }
    };
    multiply_on_units<T, ADepthFirst, BDepthFirst>({a, a_stride, b, b_stride, depth}, tile.row,
                                                   result.rows, tile.column, result.columns,
                                                   result.is_fp32 ? kSegment : depth, write);
  }
#endif
  if constexpr (!kUnits) {
    multiply_plainly<T, ADepthFirst, BDepthFirst>(result, a, a_stride, b, b_stride, bias, depth,
                                                  tile);
  }
}

// m and k are what is left of rows and depth, of which one launch takes `most_m` and `most_k`.
// a is [M,K] where n, [K,M] where t; b is [K,N] where n, [N,K] where t.
#define STAGECOACH_MATMUL_FORM(T, NAME, FORM, A_DEPTH_FIRST, B_DEPTH_FIRST)                     \
  extern "C" __global__ void __launch_bounds__(kThreads,                                        \
                                               kMatrixUnitShapes && sizeof(T) == 2 ? 1 : 2)     \
      matmul_##FORM##_##NAME(void* out, int64_t out_stride, const T* a, int64_t a_stride,       \
                             const T* b, int64_t b_stride, const T* bias, int64_t m, int64_t n, \
                             int64_t k, int64_t most_m, int64_t most_k, float alpha,            \
                             int32_t out_is_fp32, int32_t add_to) {                             \
    int64_t rows = m < most_m ? m : most_m;                                                     \
    matmul<T, A_DEPTH_FIRST, B_DEPTH_FIRST>(                                                    \
        Result{out, out_stride, rows, n, alpha, out_is_fp32 != 0, add_to != 0}, a, a_stride, b, \
        b_stride, bias, k < most_k ? k : most_k);                                               \
  }
#define STAGECOACH_MATMUL(T, NAME)                  \
  STAGECOACH_MATMUL_FORM(T, NAME, nn, true, false)  \
  STAGECOACH_MATMUL_FORM(T, NAME, nt, true, true)   \
  STAGECOACH_MATMUL_FORM(T, NAME, tn, false, false) \
  STAGECOACH_MATMUL_FORM(T, NAME, tt, false, true)

STAGECOACH_FOR_STORAGE(STAGECOACH_MATMUL)

}  // namespace stagecoach::matmul_kernels
