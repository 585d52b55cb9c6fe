#pragma once

#include "backends/gpu/kernels/element.gpu.h"

namespace stagecoach {

// Two neighbouring elements at a time.

/// Whether two types are one.
template <typename A, typename B>
struct SameType {
  static constexpr bool value = false;
};
/// They are.
template <typename A>
struct SameType<A, A> {
  static constexpr bool value = true;
};

/// Both rounded, the first in the low bits.
template <typename T>
__device__ inline uint32_t pack_pair(float low, float high) {
  uint32_t words;
#if STAGECOACH_MATRIX_UNITS
  if constexpr (SameType<T, BF16>::value) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(words) : "f"(high), "f"(low));
  }
#else
  words = rounded<T>(low).bits | static_cast<uint32_t>(rounded<T>(high).bits) << 16;
#endif
  return words;
}

/// Writes two elements that start at a multiple of their size together.
__device__ inline void store_pair(float* target, float first, float second) {
  struct alignas(8) Pair {
    float values[2];
  };
  *reinterpret_cast<Pair*>(target) = {{first, second}};
}
template <typename T>
__device__ inline void store_pair(T* target, float first, float second) {
  *reinterpret_cast<uint32_t*>(target) = pack_pair<T>(first, second);
}

}  // namespace stagecoach
