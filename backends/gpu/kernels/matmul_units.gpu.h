#pragma once

#include "backends/gpu/kernels/matmul_sides.gpu.h"
#include "backends/gpu/kernels/matmul_tiles.h"
#include "backends/gpu/kernels/tile_product.gpu.h"
#include "backends/gpu/kernels/warpgroup_product.gpu.h"

namespace stagecoach::matmul_kernels {

constexpr MatmulShape kUnitShape = matmul_shape(true);

#if STAGECOACH_MATRIX_UNITS

#if STAGECOACH_WARPGROUP_UNITS
constexpr bool kOnWarpgroups = true;
constexpr int kUnitRowTiles = 1;
constexpr int kUnitColumnTiles = kUnitShape.columns / 8;
#else
constexpr bool kOnWarpgroups = false;
constexpr int kUnitRowTiles = 4;
constexpr int kUnitColumnTiles = kUnitShape.columns / 4 / 8;
#endif
using UnitSums = float[kUnitRowTiles][kUnitColumnTiles][4];

/// Where a group's sums begin: it has 16 rows, or 64 and a quarter of the columns.
struct UnitPlace {
  int group = same_in_lanes(static_cast<int>(threadIdx.x / kLanes));
  int row = kOnWarpgroups ? group * 16 : group / 4 * 64;
  int column = kOnWarpgroups ? 0 : group % 4 * (kUnitColumnTiles * 8);
};

/// sums += a * b^T over one stage.
template <typename T, typename A, typename B>
__device__ inline void multiply_stage(UnitSums& sums, A a, B b) {
  UnitPlace place;
#if STAGECOACH_WARPGROUP_UNITS
  a.first = place.group / 4 * 64;
  auto left = describe(a);
  auto right = describe(b);
  products_begin<true>();
#pragma unroll
  for (int k = 0; k < 64; k += 16) {
    warpgroup_multiply_add<A::kDepthFirst, B::kDepthFirst>(sums[0], left.at(k), right.at(k), 1,
                                                           T{});
  }
  products_commit<true>();
#else
  a.first = place.row;
  b.first = place.column;
  multiply_tiles<T>(sums, a, b, 64);
#endif
}

/// Shared memory that the launch gave.
__device__ inline unsigned dynamic_shared_bytes() {
  unsigned bytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
  return bytes;
}

/// Sets all sums to zero.
__device__ inline void clear_unit_sums(UnitSums& sums) {
#pragma unroll
  for (int m = 0; m < kUnitRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kUnitColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;
    }
  }
}

/// Adds up the products of tiles first to last - 1 of K, which pass through the stages.
template <typename T, typename A, typename B>
__device__ inline void add_products(UnitSums& sums, const A& a, const B& b, unsigned char* shared,
                                    int stages, int first, int last) {
  // With three stages or more the products of one tile end while those of the next begin.
  int ahead = stages > 2 ? stages - 2 : 1;
  auto load = [&](int tile) {
    unsigned char* to = shared + tile % stages * kUnitShape.stage_bytes;
    if (tile < last) {
      a.load(to, int64_t{tile} * A::kDepth);
      b.load(to + A::kBytes, int64_t{tile} * A::kDepth);
    }
    copies_commit();
  };
#pragma unroll 1
  for (int tile = first; tile < first + ahead; ++tile) load(tile);
#pragma unroll 1
  for (int tile = first; tile < last; ++tile) {
    if (ahead == 1) {
      copies_wait<0>();
    } else {
      copies_wait<1>();
    }
    __syncthreads();
    load(tile + ahead);
    T* from = reinterpret_cast<T*>(shared + tile % stages * kUnitShape.stage_bytes);
    multiply_stage<T>(sums, typename A::Operand{{from}},
                      typename B::Operand{{from + A::kBytes / sizeof(T)}});
#if STAGECOACH_WARPGROUP_UNITS
    // Cards with these units have room for four stages.
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
#endif
  }
#if STAGECOACH_WARPGROUP_UNITS
  products_wait<true, 0>(sums);
#endif
  __syncthreads();
}

/// Passes sums through shared memory so that lanes have neighbours: write(row, column, values) for
/// four columns of the tile at a time.
template <typename Write>
__device__ inline void unload_sums(const UnitSums& sums, unsigned char* shared,
                                   const Write& write) {
  constexpr int kTiles = kOnWarpgroups ? 16 : kUnitColumnTiles;
  constexpr int kLine = kTiles * 8;
  constexpr int kStride = kLine + 4;
  constexpr int kPieces = kUnitRowTiles * kUnitColumnTiles / kTiles;
  UnitPlace place;
  float* lines = reinterpret_cast<float*>(shared) + place.group * 16 * kStride;
  int lane = static_cast<int>(threadIdx.x % kLanes);
#pragma unroll
  for (int piece = 0; piece < kPieces; ++piece) {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      constexpr int kAcross = kUnitColumnTiles / kTiles;
      const float(&four)[4] = sums[piece / kAcross][piece % kAcross * kTiles + n];
      float* at = lines + lane / 4 * kStride + n * 8 + lane % 4 * 2;
      store_pair(at, four[0], four[1]);
      store_pair(at + 8 * kStride, four[2], four[3]);
    }
    lanes_sync();
    int row = place.row + (kOnWarpgroups ? 0 : piece * 16);
    int column = place.column + (kOnWarpgroups ? piece * kLine : 0);
#pragma unroll 1
    for (int i = lane * 4; i < 16 * kLine; i += kLanes * 4) {
      write(row + i / kLine, column + i % kLine,
            *reinterpret_cast<const float4*>(lines + i / kLine * kStride + i % kLine));
    }
    lanes_sync();
  }
}

/// A tile of the product, sums of at most `segment` terms at a time: write(row, column, values,
/// whether they are the first terms).
template <typename T, bool ADepthFirst, bool BDepthFirst, typename Write>
__device__ inline void multiply_on_units(const Factors<T>& factors, int64_t first_row, int64_t rows,
                                         int64_t first_column, int64_t columns, int64_t segment,
                                         const Write& write) {
  using A = StreamedSide<T, ADepthFirst, kUnitShape.rows>;
  using B = StreamedSide<T, BDepthFirst, kUnitShape.columns>;
  STAGECOACH_DYNAMIC_SHARED(shared);
  A a(factors.a, factors.a_stride, first_row, rows, factors.depth);
  B b(factors.b, factors.b_stride, first_column, columns, factors.depth);
  int stages = static_cast<int>(dynamic_shared_bytes() / kUnitShape.stage_bytes);
  int tiles = static_cast<int>((factors.depth + A::kDepth - 1) / A::kDepth);
  int step = static_cast<int>((segment + A::kDepth - 1) / A::kDepth);
#pragma unroll 1
  for (int first = 0; first < tiles; first += step) {
    UnitSums sums;
    clear_unit_sums(sums);
    add_products<T>(sums, a, b, shared, stages, first, tiles - first < step ? tiles : first + step);
    unload_sums(sums, shared, [&](int row, int column, const float4& values) {
      write(row, column, values, first == 0);
    });
    __syncthreads();
  }
}

#endif

}  // namespace stagecoach::matmul_kernels
