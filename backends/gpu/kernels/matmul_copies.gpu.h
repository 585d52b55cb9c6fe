#pragma once

#include "backends/gpu/kernels/matmul_units.gpu.h"
#include "backends/gpu/kernels/tile_product.gpu.h"

namespace stagecoach::matmul_kernels {

constexpr MatmulShape kPlainShape = matmul_shape(false);
constexpr int kTile = kPlainShape.rows;

/// How tiles of the plain way lie in shared memory.
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

}  // namespace stagecoach::matmul_kernels
