#pragma once

#include "backends/gpu/kernels/element.gpu.h"

namespace stagecoach {

// Arithmetic whose every step is rounded by itself, whatever the compiler may fuse elsewhere, and
// where denormals are zero: what the host computes under FlushDenormals. Only a result within one
// part in 2^24 below the least normal number may differ, where processors disagree on what is tiny.

/// Zero with its sign instead of a denormal.
__device__ inline float flushed(float value) {
  uint32_t bits = bits_of(value);
  return (bits & 0x7f800000u) == 0 ? float_of(bits & 0x80000000u) : value;
}

/// a * b. Operands are no denormals.
__device__ inline float separate_product(float a, float b) {
#if defined(STAGECOACH_EMULATED_GPU)
  return flushed(a * b);
#elif defined(__HIP__)
#pragma clang fp contract(off)
  return flushed(a * b);
#else
  return flushed(__fmul_rn(a, b));
#endif
}

/// a + b. Operands are no denormals.
__device__ inline float separate_sum(float a, float b) {
#if defined(STAGECOACH_EMULATED_GPU)
  return flushed(a + b);
#elif defined(__HIP__)
#pragma clang fp contract(off)
  return flushed(a + b);
#else
  return flushed(__fadd_rn(a, b));
#endif
}

}  // namespace stagecoach
