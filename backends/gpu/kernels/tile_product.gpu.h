#pragma once

#include "backends/gpu/kernels/pairs.gpu.h"

namespace stagecoach {

// Products of tiles in shared memory by a group of 32 lanes: on matrix units where the target has
// them for the type, else by plain multiply-adds with the same owner for every element.
//
// Lane l owns, of each 16 x 8 tile of the result, rows l / 4 and l / 4 + 8 of columns 2 * (l % 4)
// and the next: elements 0, 1 of the upper row, 2, 3 of the lower.

/// An operand's tile: element (i, k) is at data[i * stride + k], or data[k * stride + i] where
/// `DepthFirst` is false. Rows start at multiples of 16 bytes.
template <typename T, bool DepthFirst>
struct TileOperand {
  static constexpr bool kDepthFirst = DepthFirst;
  const T* data;
  int stride;

  __device__ const T* piece(int i, int k) const {
    return data + (DepthFirst ? i * stride + k : k * stride + i);
  }
  __device__ float at(int i, int k) const { return to_float(*piece(i, k)); }
};

/// Whether products of this type have matrix instructions.
template <typename T>
struct HasMatrixUnit {
  static constexpr bool value = false;
};

#if STAGECOACH_MATRIX_UNITS
template <>
struct HasMatrixUnit<BF16> {
  static constexpr bool value = true;
};
template <>
struct HasMatrixUnit<F16> {
  static constexpr bool value = true;
};

/// Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
template <bool Transposed>
__device__ inline void load_matrices(uint32_t (&parts)[4], const void* row) {
  uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (Transposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
                 : "r"(address)
                 : "memory");
  }
}

/// c += a * b of one 16 x 8 tile, 16 terms deep.
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                    BF16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// c += a * b of one 16 x 8 tile, 16 terms deep.
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                    F16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// multiply_tiles by matrix instructions.
template <typename T, int MTiles, int NTiles, typename A, typename B>
__device__ inline void multiply_on_units(float (&sums)[MTiles][NTiles][4], const A& a, const B& b,
                                         int depth, int n_tiles) {
  int line = static_cast<int>(threadIdx.x % 8);
  int low = static_cast<int>(threadIdx.x / 8 % 2) * 8;
  int high = static_cast<int>(threadIdx.x / 16 % 2) * 8;
#pragma unroll 2
  for (int k = 0; k < depth; k += 16) {
    uint32_t a_parts[MTiles][4];
#pragma unroll
    for (int m = 0; m < MTiles; ++m) {
      const T* row = A::kDepthFirst ? a.piece(m * 16 + low + line, k + high)
                                    : a.piece(m * 16 + low, k + high + line);
      load_matrices<!A::kDepthFirst>(a_parts[m], row);
    }
#pragma unroll
    for (int n = 0; n < NTiles; n += 2) {
      if (n >= n_tiles) continue;
      const T* row = B::kDepthFirst ? b.piece(n * 8 + high + line, k + low)
                                    : b.piece(n * 8 + high, k + low + line);
      uint32_t b_parts[4];
      load_matrices<!B::kDepthFirst>(b_parts, row);
#pragma unroll
      for (int m = 0; m < MTiles; ++m) {
        multiply_add(sums[m][n], a_parts[m], b_parts[0], b_parts[1], T{});
        multiply_add(sums[m][n + 1], a_parts[m], b_parts[2], b_parts[3], T{});
      }
    }
  }
}
#endif

/// multiply_tiles by multiply-adds.
template <typename T, int MTiles, int NTiles, typename A, typename B>
__device__ inline void multiply_plain(float (&sums)[MTiles][NTiles][4], const A& a, const B& b,
                                      int depth, int n_tiles) {
  int row = static_cast<int>(threadIdx.x % kLanes / 4);
  int column = static_cast<int>(threadIdx.x % 4) * 2;
  for (int k = 0; k < depth; ++k) {
    float left[MTiles][2];
#pragma unroll
    for (int m = 0; m < MTiles; ++m) {
      left[m][0] = a.at(m * 16 + row, k);
      left[m][1] = a.at(m * 16 + row + 8, k);
    }
#pragma unroll
    for (int n = 0; n < NTiles; ++n) {
      if (n >= n_tiles) continue;
      float right0 = b.at(n * 8 + column, k);
      float right1 = b.at(n * 8 + column + 1, k);
#pragma unroll
      for (int m = 0; m < MTiles; ++m) {
        sums[m][n][0] = fmaf(left[m][0], right0, sums[m][n][0]);
        sums[m][n][1] = fmaf(left[m][0], right1, sums[m][n][1]);
        sums[m][n][2] = fmaf(left[m][1], right0, sums[m][n][2]);
        sums[m][n][3] = fmaf(left[m][1], right1, sums[m][n][3]);
      }
    }
  }
}

/// sums += a * b^T over `depth` (a multiple of 16) for the first `n_tiles` (even) tiles of columns.
template <typename T, int MTiles, int NTiles, typename A, typename B>
__device__ inline void multiply_tiles(float (&sums)[MTiles][NTiles][4], const A& a, const B& b,
                                      int depth, int n_tiles = NTiles) {
#if STAGECOACH_MATRIX_UNITS
  if constexpr (HasMatrixUnit<T>::value) {
    multiply_on_units<T>(sums, a, b, depth, n_tiles);
    return;
  }
#endif
  multiply_plain<T>(sums, a, b, depth, n_tiles);
}

}  // namespace stagecoach
