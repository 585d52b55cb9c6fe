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
/// The address in shared memory, as instructions take it.
__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
#endif

/// Begins to copy the first `bytes` of 16 to shared memory, and zeros; both addresses aligned.
__device__ inline void copy_bytes16(void* shared, const void* source, int bytes) {
#if STAGECOACH_MATRIX_UNITS
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(source), "r"(bytes)
               : "memory");
#else
  Bytes16 piece{};
  if (bytes == 16) piece = *static_cast<const Bytes16*>(source);
  auto* to = reinterpret_cast<unsigned char*>(&piece);
  for (int i = 0; i < bytes && bytes < 16; ++i) {
    to[i] = static_cast<const unsigned char*>(source)[i];
  }
  *static_cast<Bytes16*>(shared) = piece;
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
/// elements of each; the rest becomes zeros. `aligned`: every line starts at a whole piece.
template <int Columns, int Threads, typename T, int Lines>
__device__ inline void copy_tile(SharedTile<T, Lines> tile, const T* source, int64_t width,
                                 int valid, int length, bool aligned) {
  constexpr int kPiece = SharedTile<T, Lines>::kPiece;
  constexpr int kPerLine = Columns / kPiece;
  constexpr int kAtOnce = Threads < kPerLine ? Threads : kPerLine;  // pieces of a line
  constexpr int kStep = Threads / kAtOnce;
  static_assert(kPerLine % kAtOnce == 0 && Lines % kStep == 0);
  int first = static_cast<int>(threadIdx.x) / kAtOnce;
#pragma unroll
  for (int part = 0; part < kPerLine; part += kAtOnce) {
    int column = (static_cast<int>(threadIdx.x) % kAtOnce + part) * kPiece;
    const T* from = source + first * width + column;
    if (aligned) {
      int left = length - column;
      int bytes = left >= kPiece ? 16 : left * static_cast<int>(sizeof(T));
      int most = left > 0 ? valid - first : 0;
#pragma unroll
      for (int line = 0; line < Lines; line += kStep, from += kStep * width) {
        bool inside = line < most;
        copy_bytes16(tile.at(first + line, column), inside ? from : source, inside ? bytes : 0);
      }
      continue;
    }
#pragma unroll 1
    for (int line = first; line < Lines; line += kStep, from += kStep * width) {
      T* to = tile.at(line, column);
#pragma unroll 1
      for (int k = 0; k < kPiece; ++k) {
        to[k] = line < valid && column + k < length ? from[k] : T{};
      }
    }
  }
}

}  // namespace stagecoach
