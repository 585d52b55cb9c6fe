// out = alpha * op(a) * op(b) (+ bias) (+ out), in tiles of 128 x 128, on matrix units 128 x 256. K
// is never split.

#include "backends/gpu/kernels/matmul_tile.gpu.h"

namespace stagecoach::matmul_kernels {

/// Tiles of rows that share columns of b while these are in the cache.
constexpr int64_t kRaster = 8;

/// Tile number `index` in an order that reuses what is in the cache.
__device__ inline TilePosition locate_tile(int64_t index, int64_t row_tiles, int64_t column_tiles,
                                           const MatmulShape& shape) {
  int64_t group = index / (kRaster * column_tiles);
  int64_t first = group * kRaster;
  int64_t height = row_tiles - first < kRaster ? row_tiles - first : kRaster;
  int64_t within = index - group * kRaster * column_tiles;
  return {(first + within % height) * shape.rows, within / height * shape.columns};
}

template <typename T, bool ADepthFirst, bool BDepthFirst>
__device__ inline void matmul(const Result& result, const T* a, int64_t a_stride, const T* b,
                              int64_t b_stride, const T* bias, int64_t depth) {
  constexpr MatmulShape kShape = kTileShape<T>;
  int64_t row_tiles = tile_count(result.rows, kShape.rows);
  int64_t column_tiles = tile_count(result.columns, kShape.columns);
  // Whole blocks leave here: a last launch may have fewer tiles than its grid.
  if (static_cast<int64_t>(blockIdx.x) >= row_tiles * column_tiles) return;
  TilePosition tile = locate_tile(blockIdx.x, row_tiles, column_tiles, kShape);
  multiply_tile<T, ADepthFirst, BDepthFirst>(result, a, a_stride, b, b_stride, bias, depth, tile);
}

// m and k are what is left of rows and depth, of which one launch takes `most_m` and `most_k`.
// a is [M,K] where n, [K,M] where t; b is [K,N] where n, [N,K] where t.
#define STAGECOACH_MATMUL_FORM(T, NAME, FORM, A_DEPTH_FIRST, B_DEPTH_FIRST)                        \
  extern "C" __global__ void __launch_bounds__(kThreads, kLeastBlocks<T>) matmul_##FORM##_##NAME(  \
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
