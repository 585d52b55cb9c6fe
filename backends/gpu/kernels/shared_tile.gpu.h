#pragma once

#include "backends/gpu/kernels/element.gpu.h"

namespace stagecoach {

// Tiles in shared memory, and copies into them that run beside the work.

/// A tile of Lines lines: panels of 128 bytes of every line one after another, the 16-byte pieces
/// of a line's panel in an order that depends on the line's number modulo 8. Eight lines are read
/// at one column, or one line at eight columns, without two accesses to a bank; wgmma calls it the
/// 128-byte swizzle, which wants panels that start at multiples of 1024 bytes.
template <typename T, int Lines>
struct SharedTile {
  static constexpr unsigned kPiece = 16 / sizeof(T);
  static constexpr unsigned kPanel = 128 / sizeof(T);
  static constexpr int kLines = Lines;
  static constexpr int kPanelElements = Lines * static_cast<int>(kPanel);
  T* data;

  __device__ T* at(unsigned line, unsigned column) const {
    unsigned piece = column % kPanel / kPiece ^ line % 8;
    return data + (column / kPanel * Lines + line) * kPanel + piece * kPiece + column % kPiece;
  }
};

/// A tile as an operand of a product: element (i, k) lies in line first + i at column k, or in line
/// k at column first + i where `DepthFirst` is false.
template <typename T, int Lines, bool DepthFirst>
struct SwizzledOperand {
  static constexpr bool kDepthFirst = DepthFirst;
  SharedTile<T, Lines> tile;
  int first = 0;

  __device__ const T* piece(int i, int k) const {
    return DepthFirst ? tile.at(first + i, k) : tile.at(k, first + i);
  }
  __device__ float at(int i, int k) const { return to_float(*piece(i, k)); }
};

#if STAGECOACH_MATRIX_UNITS
__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
#endif

/// Begins to copy 16 bytes to shared memory, zeros where not `valid`; both addresses aligned.
__device__ inline void copy_bytes16(void* shared, const void* source, bool valid) {
#if STAGECOACH_MATRIX_UNITS
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(source), "r"(valid ? 16 : 0)
               : "memory");
#else
  *static_cast<Bytes16*>(shared) = valid ? *static_cast<const Bytes16*>(source) : Bytes16{};
#endif
}
__device__ inline void copy_float(float* shared, const float* source, bool valid) {
#if STAGECOACH_MATRIX_UNITS
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(shared)),
               "l"(source), "r"(valid ? 4 : 0)
               : "memory");
#else
  *shared = valid ? *source : 0.0f;
#endif
}

/// Closes a group of copies.
__device__ inline void copies_commit() {
#if STAGECOACH_MATRIX_UNITS
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits for this thread's copies but those of the last `Pending` groups, and lets matrix units see
/// them; a barrier must follow.
template <int Pending>
__device__ inline void copies_wait() {
#if STAGECOACH_MATRIX_UNITS
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
#if STAGECOACH_WARPGROUP_UNITS
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// Begins to copy Columns columns of lines that lie `width` apart, `valid` of them and `length`
/// elements of each; the rest becomes zeros. `aligned`: lines and `length` are whole pieces.
template <int Columns, int Threads, typename T, int Lines>
__device__ inline void copy_tile(SharedTile<T, Lines> tile, const T* source, int64_t width,
                                 int64_t valid, int64_t length, bool aligned) {
  constexpr unsigned kPiece = SharedTile<T, Lines>::kPiece;
  constexpr unsigned kPerLine = Columns / kPiece;
  constexpr unsigned kTurns = Lines * kPerLine / Threads;
  static_assert(kTurns * Threads == Lines * kPerLine);
#pragma unroll
  for (unsigned turn = 0; turn < kTurns; ++turn) {
    unsigned index = turn * Threads + threadIdx.x;
    unsigned line = index / kPerLine;
    unsigned column = index % kPerLine * kPiece;
    T* to = tile.at(line, column);
    const T* from = source + line * width + column;
    bool inside = line < valid && column < length;
    if (aligned) {
      copy_bytes16(to, inside ? from : source, inside);
      continue;
    }
#pragma unroll
    for (unsigned k = 0; k < kPiece; ++k) {
      to[k] = inside && column + k < length ? from[k] : T{};
    }
  }
}

}  // namespace stagecoach
