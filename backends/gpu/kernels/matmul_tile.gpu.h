#pragma once

#include "backends/gpu/kernels/matmul_copies.gpu.h"

namespace stagecoach::matmul_kernels {

/// A group of lanes computes 64 x 32: two groups down, four across.
constexpr int kRowTiles = 4;
constexpr int kColumnTiles = 4;
/// Terms of an fp32 result that are summed before they join the rest: rounding errors grow with the
/// number of terms.
constexpr int64_t kSegment = 4096;

/// Where a product goes.
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

/// Tiles of `tile` that cover `length`.
__device__ inline int64_t tile_count(int64_t length, int tile) {
  return (length + tile - 1) / tile;
}

/// Where a tile of the result begins.
struct TilePosition {
  int64_t row, column;
};

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

/// The shape of tiles that `multiply_tile` computes.
template <typename T>
constexpr MatmulShape kTileShape = kMatrixUnitShapes && sizeof(T) == 2 ? kUnitShape : kPlainShape;
/// Blocks of a multiprocessor at least, for __launch_bounds__.
template <typename T>
constexpr int kLeastBlocks = kMatrixUnitShapes && sizeof(T) == 2 ? 1 : 2;

/// The tile of the product that begins at `tile`. A block's whole work.
template <typename T, bool ADepthFirst, bool BDepthFirst>
__device__ inline void multiply_tile(const Result& result, const T* a, int64_t a_stride, const T* b,
                                     int64_t b_stride, const T* bias, int64_t depth,
                                     const TilePosition& tile) {
  constexpr bool kUnits = kMatrixUnitShapes && sizeof(T) == 2;
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

}  // namespace stagecoach::matmul_kernels
