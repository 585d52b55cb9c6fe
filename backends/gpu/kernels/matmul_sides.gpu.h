#pragma once

#include "backends/gpu/kernels/shared_tile.gpu.h"

namespace stagecoach::matmul_kernels {

constexpr int kThreads = 256;

/// What a product is of: a[M, K] and b[K, N] (or transposed, where K is the contiguous side).
template <typename T>
struct Factors {
  const T* a;
  int64_t a_stride;
  const T* b;
  int64_t b_stride;
  int64_t depth;
};

/// A tile on its way to shared memory, kDepth of K at a time; `Side` rows or columns of the result.
template <typename T, bool DepthFirst, int Side>
struct StreamedSide {
  static constexpr int kDepth = 64;
  static constexpr int kLines = DepthFirst ? Side : kDepth;
  static constexpr int kBytes = Side * kDepth * static_cast<int>(sizeof(T));
  using Tile = SharedTile<T, kLines>;
  using Operand = SwizzledOperand<T, kLines, DepthFirst>;
  const T* data;
  int64_t stride;
  int64_t left;  ///< rows or columns from the tile's first on
  int64_t depth;
  bool aligned;

  __device__ StreamedSide(const T* source, int64_t width, int64_t first, int64_t length,
                          int64_t terms)
      : data(source + (DepthFirst ? first * width : first)),
        stride(width),
        left(length - first),
        depth(terms),
        aligned(width % 8 == 0 && all_aligned(source)) {}

  __device__ void load(void* shared, int64_t k) const {
    int side = left < Side ? static_cast<int>(left) : Side;
    int terms = depth - k < kDepth ? static_cast<int>(depth - k) : kDepth;
    copy_tile<DepthFirst ? kDepth : Side, kThreads>(
        Tile{static_cast<T*>(shared)}, data + (DepthFirst ? k : k * stride), stride,
        DepthFirst ? side : terms, DepthFirst ? terms : side, aligned);
  }
};

}  // namespace stagecoach::matmul_kernels
