// Products of rows that lie by expert with their experts' matrices. How many rows an expert has is
// known on the device alone: grids are for the most tiles that there can be, and each block finds
// its expert in the offsets.

#include "backends/gpu/kernels/matmul_tile.gpu.h"

namespace stagecoach::grouped_matmul_kernels {

using matmul_kernels::kLeastBlocks;
using matmul_kernels::kThreads;
using matmul_kernels::kTileShape;
using matmul_kernels::multiply_tile;
using matmul_kernels::Result;
using matmul_kernels::tile_count;
using matmul_kernels::TilePosition;

/// Rows of one expert, and where a tile of them begins.
struct ExpertTile {
  int64_t expert;  ///< -1: none
  int64_t first, rows;
  int64_t row;  ///< of those
};

/// Tile number `index` of all experts' tiles of `height` rows.
__device__ inline ExpertTile find_expert(const int32_t* offsets, int64_t experts, int64_t index,
                                         int height) {
  int64_t first = offsets[0];
  for (int64_t e = 0; e < experts; ++e) {
    int64_t next = offsets[e + 1];
    int64_t tiles = tile_count(next - first, height);
    if (index < tiles) return {e, first, next - first, index * height};
    index -= tiles;
    first = next;
  }
  return {-1, 0, 0, 0};
}

/// out[N, columns] = a[N, depth] * b of the row's expert (+ bias).
template <typename T, bool BDepthFirst>
__device__ inline void grouped_matmul(T* out, const T* a, const T* b, const T* bias,
                                      const int32_t* offsets, int64_t experts, int64_t columns,
                                      int64_t depth) {
  constexpr MatmulShape kShape = kTileShape<T>;
  int64_t column_tiles = tile_count(columns, kShape.columns);
  ExpertTile rows =
      find_expert(offsets, experts, static_cast<int64_t>(blockIdx.x) / column_tiles, kShape.rows);
  // Whole blocks leave here.
  if (rows.expert < 0) return;
  TilePosition tile{rows.row, static_cast<int64_t>(blockIdx.x) % column_tiles * kShape.columns};
  Result result{
      out + rows.first * columns, columns, rows.rows, columns, 1.0f, sizeof(T) == 4, false};
  multiply_tile<T, true, BDepthFirst>(
      result, a + rows.first * depth, depth, b + rows.expert * columns * depth,
      BDepthFirst ? depth : columns, bias == nullptr ? nullptr : bias + rows.expert * columns,
      depth, tile);
}

/// out[E, rows, columns] += a[N, rows]^T * b[N, columns] of each expert's rows of both.
template <typename T>
__device__ inline void grouped_matmul_weight(float* out, const T* a, const T* b,
                                             const int32_t* offsets, int64_t rows,
                                             int64_t columns) {
  constexpr MatmulShape kShape = kTileShape<T>;
  int64_t column_tiles = tile_count(columns, kShape.columns);
  int64_t tiles = tile_count(rows, kShape.rows) * column_tiles;
  int64_t expert = static_cast<int64_t>(blockIdx.x) / tiles;
  int64_t index = static_cast<int64_t>(blockIdx.x) % tiles;
  int64_t first = offsets[expert];
  int64_t depth = offsets[expert + 1] - first;
  if (depth == 0) return;
  TilePosition tile{index / column_tiles * kShape.rows, index % column_tiles * kShape.columns};
  Result result{out + expert * rows * columns, columns, rows, columns, 1.0f, true, true};
  const T* no_bias = nullptr;
  multiply_tile<T, false, false>(result, a + first * rows, rows, b + first * columns, columns,
                                 no_bias, depth, tile);
}

// b is [E, depth, columns] where n, [E, columns, depth] where t.
#define STAGECOACH_GROUPED_FORM(T, NAME, FORM, B_DEPTH_FIRST)                                  \
  extern "C" __global__ void __launch_bounds__(kThreads, kLeastBlocks<T>)                      \
      grouped_matmul_##FORM##_##NAME(T* out, const T* a, const T* b, const T* bias,            \
                                     const int32_t* offsets, int64_t experts, int64_t columns, \
                                     int64_t depth) {                                          \
    grouped_matmul<T, B_DEPTH_FIRST>(out, a, b, bias, offsets, experts, columns, depth);       \
  }
#define STAGECOACH_GROUPED(T, NAME)                                                            \
  STAGECOACH_GROUPED_FORM(T, NAME, n, false)                                                   \
  STAGECOACH_GROUPED_FORM(T, NAME, t, true)                                                    \
  extern "C" __global__ void __launch_bounds__(kThreads, kLeastBlocks<T>)                      \
      grouped_matmul_weight_##NAME(float* out, const T* a, const T* b, const int32_t* offsets, \
                                   int64_t rows, int64_t columns) {                            \
    grouped_matmul_weight(out, a, b, offsets, rows, columns);                                  \
  }

STAGECOACH_FOR_STORAGE(STAGECOACH_GROUPED)

}  // namespace stagecoach::grouped_matmul_kernels
