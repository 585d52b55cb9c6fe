#pragma once

#include "backends/gpu/kernels/tile_product.gpu.h"
#include "backends/gpu/kernels/warpgroup_product.gpu.h"

namespace stagecoach {

// Products of attention: own rows by streamed rows gives scores; scores, which never leave
// registers, by streamed rows gives results. A group of lanes has 16 own rows.

/// A group's scores, rounded to T, as the left operand of a product.
template <typename T, int Tiles>
struct RegisterRows {
#if STAGECOACH_MATRIX_UNITS
  static constexpr bool kPacked = HasMatrixUnit<T>::value;
#else
  static constexpr bool kPacked = false;
#endif
  // A lane's numbers of two 16 x 8 tiles of sums are its numbers of a 16 x 16 left operand.
  union {
    uint32_t words[Tiles / 2][4];
    float values[kPacked ? 1 : Tiles][4];
  };

  __device__ explicit RegisterRows(const float (&scores)[1][Tiles][4]) {
#pragma unroll
    for (int n = 0; n < Tiles; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float first = scores[0][n][2 * half];
        float second = scores[0][n][2 * half + 1];
        if constexpr (kPacked) {
          words[n / 2][n % 2 * 2 + half] = pack_pair<T>(first, second);
        } else {
          values[n][2 * half] = to_float(rounded<T>(first));
          values[n][2 * half + 1] = to_float(rounded<T>(second));
        }
      }
    }
  }
};

/// A group's own rows as the left operand, for as long as a block lasts.
template <typename T, int Dim>
struct ResidentRows {
  uint32_t words[Dim / 16][4];

#if STAGECOACH_MATRIX_UNITS
  template <int Lines>
  __device__ void load(SharedTile<T, Lines> tile, int group) {
    unsigned line = group * 16 + threadIdx.x % 16;
#pragma unroll
    for (int k = 0; k < Dim / 16; ++k) {
      load_matrices<false>(words[k], tile.at(line, k * 16 + threadIdx.x / 16 % 2 * 8));
    }
  }
#endif
};

#if STAGECOACH_MATRIX_UNITS
/// sums += a * b^T, a in registers.
template <typename T, int Steps, int NTiles, typename B>
__device__ inline void multiply_registers(float (&sums)[1][NTiles][4],
                                          const uint32_t (&a)[Steps][4], const B& b) {
  int line = static_cast<int>(threadIdx.x % 8);
  int low = static_cast<int>(threadIdx.x / 8 % 2) * 8;
  int high = static_cast<int>(threadIdx.x / 16 % 2) * 8;
#pragma unroll
  for (int k = 0; k < Steps; ++k) {
#pragma unroll
    for (int n = 0; n < NTiles; n += 2) {
      const T* row = B::kDepthFirst ? b.piece(n * 8 + high + line, k * 16 + low)
                                    : b.piece(n * 8 + high, k * 16 + low + line);
      uint32_t b_parts[4];
      load_matrices<!B::kDepthFirst>(b_parts, row);
      multiply_add(sums[0][n], a[k], b_parts[0], b_parts[1], T{});
      multiply_add(sums[0][n + 1], a[k], b_parts[2], b_parts[3], T{});
    }
  }
}
#endif

/// The same by multiply-adds; the lanes that share a row pass its numbers around.
template <int Tiles, int NTiles, typename B>
__device__ inline void multiply_passed(float (&sums)[1][NTiles][4], const float (&a)[Tiles][4],
                                       const B& b, int n_tiles) {
  int quarter = static_cast<int>(threadIdx.x % 4);
#pragma unroll 1
  for (int turn = 0; turn < 4; ++turn) {
#pragma unroll 1
    for (int t = 0; t < Tiles; ++t) {
      float left[4] = {};
#pragma unroll
      for (int m = 0; m < Tiles; ++m) {
        // Unrolled so that registers are indexed by constants; the rest would be much code.
        if (m != t) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) left[i] = a[m][i];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) left[i] = shuffle_xor(left[i], turn);
      int k = t * 8 + (quarter ^ turn) * 2;
#pragma unroll
      for (int n = 0; n < NTiles; ++n) {
        if (n >= n_tiles) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          int column = n * 8 + quarter * 2 + i % 2;
          float sum = fmaf(left[i / 2 * 2], b.at(column, k), sums[0][n][i]);
          sums[0][n][i] = fmaf(left[i / 2 * 2 + 1], b.at(column, k + 1), sum);
        }
      }
    }
  }
}

/// Sets all sums to zero.
template <int Tiles>
__device__ inline void clear_sums(float (&sums)[1][Tiles][4]) {
#pragma unroll
  for (int n = 0; n < Tiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[0][n][i] = 0.0f;
  }
}

/// scores = own * streamed^T over the first `depth` columns (all, where matrix units do it).
template <typename T, typename Tile>
__device__ inline void score_product(float (&scores)[1][Tile::kStreamTiles][4],
                                     const typename Tile::Own& own,
                                     typename Tile::Streamed streamed, int depth) {
  int group = same_in_lanes(static_cast<int>(threadIdx.x / kLanes));
  SwizzledOperand<T, Tile::kStream, true> right{streamed};
  SwizzledOperand<T, Tile::kOwn, true> left{own, group * 16};
#if STAGECOACH_WARPGROUP_UNITS
  if constexpr (Tile::kOnWarpgroups) {
    left.first = group / 4 * 64;
    auto a = describe(left);
    auto b = describe(right);
#pragma unroll
    for (int k = 0; k < Tile::kDim; k += 16) {
      warpgroup_multiply_add<true, true>(scores[0], a.at(k), b.at(k), k, T{});
    }
  } else
#endif
  {
    clear_sums(scores);
    multiply_tiles<T>(scores, left, right, Tile::kUnits ? Tile::kDim : depth);
  }
}

#if STAGECOACH_MATRIX_UNITS
/// scores = own rows * streamed rows, by matrix units.
template <typename T, typename Tile>
__device__ inline void score_product(float (&scores)[1][Tile::kStreamTiles][4],
                                     const ResidentRows<T, Tile::kDim>& own,
                                     typename Tile::Streamed streamed, int) {
  SwizzledOperand<T, Tile::kStream, true> right{streamed};
#if STAGECOACH_WARPGROUP_UNITS
  if constexpr (Tile::kOnWarpgroups) {
    auto b = describe(right);
#pragma unroll
    for (int k = 0; k < Tile::kDim; k += 16) {
      warpgroup_multiply_add<true>(scores[0], own.words[k / 16], b.at(k), k, T{});
    }
  } else
#endif
  {
    clear_sums(scores);
    multiply_registers<T>(scores, own.words, right);
  }
}
#endif

/// result += scores * streamed, columns from `first` on; `n_tiles` of eight columns matter.
template <typename T, typename Tile, int NTiles>
__device__ inline void result_product(float (&result)[1][NTiles][4],
                                      const RegisterRows<T, Tile::kStreamTiles>& scores,
                                      typename Tile::Streamed streamed, int first, int n_tiles) {
  SwizzledOperand<T, Tile::kStream, false> right{streamed, first};
#if STAGECOACH_WARPGROUP_UNITS
  if constexpr (Tile::kOnWarpgroups) {
    auto b = describe(right);
#pragma unroll
    for (int k = 0; k < Tile::kStream; k += 16) {
      warpgroup_multiply_add<false>(result[0], scores.words[k / 16], b.at(k), 1, T{});
    }
  } else
#endif
#if STAGECOACH_MATRIX_UNITS
      if constexpr (Tile::kUnits) {
    multiply_registers<T>(result, scores.words, right);
  } else
#endif
  {
    multiply_passed(result, scores.values, right, n_tiles);
  }
}

}  // namespace stagecoach
