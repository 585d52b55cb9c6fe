#pragma once

#include "backends/gpu/kernels/attention_dropout.gpu.h"
#include "backends/gpu/kernels/attention_product.gpu.h"
#include "backends/gpu/kernels/attention_sizes.gpu.h"
#include "backends/gpu/kernels/attention_tiles.h"

namespace stagecoach {

/// Types and dimensions of one kernel; heads are padded to Dim columns with zeros.
/// Where the code for dropout, windows and documents would cost others registers, kernels without
/// it exist besides.
template <typename T, int Dim, AttentionPass ThePass, bool General>
struct AttentionTile {
  static constexpr bool kGeneral = General;
  static constexpr bool kUnits = kMatrixUnitShapes && sizeof(T) == 2;
  static constexpr bool kOnWarpgroups = kUnits && Dim <= 128;
  /// Own queries as operands in registers. wgmma reads them from shared memory: it hardly costs
  /// more, and registers are scarce.
  static constexpr bool kResident =
      kUnits && Dim <= 128 && ThePass != AttentionPass::kKeys && STAGECOACH_WARPGROUP_UNITS == 0;
  static constexpr AttentionShape kShape = attention_shape(sizeof(T), Dim, ThePass, kUnits);
  static constexpr AttentionPass kPass = ThePass;
  static constexpr int kDim = Dim;
  static constexpr int kOwn = kShape.own_rows;
  static constexpr int kStream = kShape.streamed_rows;
  static constexpr int kThreads = kShape.threads();
  static constexpr int kBlocks = kUnits && Dim == 64 ? 3 : 1;  ///< at least, on a multiprocessor
  static constexpr int kStreamTiles = kStream / 8;
  static constexpr int kSlice = stagecoach::attention_slice_columns(Dim);
  static constexpr int kOwnElements = kOwn * Dim;
  static constexpr int kStreamElements = kStream * Dim;
  using Own = SharedTile<T, kOwn>;
  using Streamed = SharedTile<T, kStream>;
};

/// Where a lane's numbers of 16 x 8 tiles of its group lie.
struct LanePlace {
  int group = same_in_lanes(static_cast<int>(threadIdx.x / kLanes));
  int row = group * 16 + static_cast<int>(threadIdx.x % kLanes / 4);  ///< and the eighth after it
  int column = static_cast<int>(threadIdx.x % 4) * 2;                 ///< and the next
  /// Where the 64 rows end that skip tiles together, as wgmma wants it.
  int last_row = group / 4 * 64 + 63;
};

/// load(tile, stage), then body(tile, stage), for `count` tiles in order. With two stages a tile is
/// loaded while the one before it is worked on.
template <typename Load, typename Body>
__device__ inline void stream_tiles(int count, int stages, const Load& load, const Body& body) {
  __syncthreads();
  load(0, 0);
  for (int i = 0; i < count; ++i) {
    int stage = stages == 1 ? 0 : i % 2;
    if (stages == 1 && i > 0) {
      __syncthreads();
      load(i, 0);
    }
    copies_wait<0>();
    __syncthreads();
    if (stages != 1 && i + 1 < count) load(i + 1, 1 - stage);
    body(i, stage);
  }
}

/// Whether heads of `dim` can be read 16 bytes at a time.
template <typename T>
__device__ inline bool heads_aligned(int dim, const T* source) {
  return dim % (16 / static_cast<int>(sizeof(T))) == 0 && all_aligned(source);
}

/// Begins to copy a head's lines, `valid` of them; heads and rows are multiples of `dim` apart.
template <typename Tile, typename T, int Lines>
__device__ inline void copy_head(SharedTile<T, Lines> tile, const T* source, int64_t width,
                                 int valid, int dim) {
  copy_tile<Tile::kDim, Tile::kThreads>(tile, source, width, valid, dim,
                                        heads_aligned(dim, source));
}

/// Keys after the query get minus infinity, where rows are queries. `distance`: from the lane's
/// first key to its query.
template <typename Tile>
__device__ inline void mask_after_queries(float (&scores)[1][Tile::kStreamTiles][4], int distance) {
#pragma unroll
  for (int n = 0; n < Tile::kStreamTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (n * 8 + i % 2 > distance + i / 2 * 8) scores[0][n][i] = -INFINITY;
    }
  }
}

/// The first keys that a lane's two queries of a tile see.
template <typename Tile>
struct FirstKeys {
  int of_rows[2] = {};
  int of_last = 0;  ///< of the tile's last query, the largest

  __device__ FirstKeys(const AttentionSizes& sizes, int64_t first_row, int first_query) {
    if constexpr (Tile::kGeneral) {
      auto first = [&](int row) {
        int query = first_query + row;
        return sizes.first_key(first_row, query < sizes.length() ? query : sizes.length() - 1);
      };
      of_rows[0] = first(LanePlace().row);
      of_rows[1] = first(LanePlace().row + 8);
      of_last = first(Tile::kOwn - 1);
    }
  }

  /// Keys before them get minus infinity, of a tile of keys that begins at `key`.
  __device__ void mask(float (&scores)[1][Tile::kStreamTiles][4], int key) const {
    if constexpr (Tile::kGeneral) {
      if (key >= of_last) return;
      int column = key + LanePlace().column;
#pragma unroll
      for (int n = 0; n < Tile::kStreamTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (column + n * 8 + i % 2 < of_rows[i / 2]) scores[0][n][i] = -INFINITY;
        }
      }
    }
  }
};

/// Tiles of keys before the first that some query of a tile sees.
template <typename Tile>
__device__ inline int unseen_tiles(const AttentionSizes& sizes, int64_t first_row,
                                   int first_query) {
  if constexpr (!Tile::kGeneral) return 0;
  return sizes.first_key(first_row, first_query) / Tile::kStream;
}

/// Writes a group's 16 lines of results, `valid` of them, `columns` wide, times a factor a row.
template <typename T, int Tiles>
__device__ inline void write_head(T* out, int64_t width, int64_t valid, int columns,
                                  const float (&sums)[1][Tiles][4], float upper, float lower) {
  int row = static_cast<int>(threadIdx.x % kLanes / 4);
  int column = static_cast<int>(threadIdx.x % 4) * 2;
  bool wide = columns >= Tiles * 8 && width % 2 == 0 && all_aligned(out);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + half * 8 >= valid) continue;
    T* line = out + (row + half * 8) * width;
    float factor = half == 0 ? upper : lower;
    if (wide) {
#pragma unroll
      for (int n = 0; n < Tiles; ++n) {
        store_pair(&line[n * 8 + column], sums[0][n][2 * half] * factor,
                   sums[0][n][2 * half + 1] * factor);
      }
      continue;
    }
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
      int c = n * 8 + column;
      if (c < columns) from_float(sums[0][n][2 * half] * factor, &line[c]);
      if (c + 1 < columns) from_float(sums[0][n][2 * half + 1] * factor, &line[c + 1]);
    }
  }
}

/// Instantiates KERNEL(T, suffix, padded dim, infix of names, whether it is general) for all.
/// Matrix units have kernels that know no dropout, windows and documents, and general ones.
#define STAGECOACH_FOR_ATTENTION(KERNEL)        \
  KERNEL(float, fp32, 64, , true)               \
  KERNEL(float, fp32, 128, , true)              \
  KERNEL(float, fp32, 256, , true)              \
  KERNEL(BF16, bf16, 64, , !kMatrixUnitShapes)  \
  KERNEL(BF16, bf16, 128, , !kMatrixUnitShapes) \
  KERNEL(BF16, bf16, 256, , true)               \
  KERNEL(F16, fp16, 64, , !kMatrixUnitShapes)   \
  KERNEL(F16, fp16, 128, , !kMatrixUnitShapes)  \
  KERNEL(F16, fp16, 256, , true)                \
  STAGECOACH_FOR_GENERAL_ATTENTION(KERNEL)
#if defined(__HIP__)
#define STAGECOACH_FOR_GENERAL_ATTENTION(KERNEL)
#else
#define STAGECOACH_FOR_GENERAL_ATTENTION(KERNEL) \
  KERNEL(BF16, bf16, 64, general_, true)         \
  KERNEL(BF16, bf16, 128, general_, true)        \
  KERNEL(F16, fp16, 64, general_, true)          \
  KERNEL(F16, fp16, 128, general_, true)
#endif

}  // namespace stagecoach
