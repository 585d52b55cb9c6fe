#pragma once

#include "backends/gpu/kernels/portability.gpu.h"

namespace stagecoach {

// Storage types and packs of elements.

/// A bf16 number as it is stored.
struct BF16 {
  uint16_t bits;
};
/// An fp16 number as it is stored.
struct F16 {
  uint16_t bits;
};

/// The bits of a float, and back.
__device__ inline uint32_t bits_of(float value) {
  union {
    float f;
    uint32_t u;
  } both;
  both.f = value;
  return both.u;
}

/// The float of these bits.
__device__ inline float float_of(uint32_t bits) {
  union {
    uint32_t u;
    float f;
  } both;
  both.u = bits;
  return both.f;
}

/// A stored number as fp32, exactly.
__device__ inline float to_float(float value) {
  return value;
}
/// A stored number as fp32, exactly.
__device__ inline float to_float(BF16 value) {
  return float_of(static_cast<uint32_t>(value.bits) << 16);
}
/// A stored number as fp32, exactly.
__device__ inline float to_float(F16 value) {
  uint32_t magnitude = static_cast<uint32_t>(value.bits & 0x7fffu) << 13;
  // Multiplying by 2^112 moves the exponent and makes subnormals normal; all of it is exact.
  uint32_t bits = bits_of(float_of(magnitude) * 0x1.0p112f);
  if (magnitude >= 0x0f800000u) bits = magnitude | 0x7f800000u;
  return float_of(bits | (static_cast<uint32_t>(value.bits & 0x8000u) << 16));
}

/// Stores `value`, rounded to nearest, ties to even.
__device__ inline void from_float(float value, float* result) {
  *result = value;
}
/// Nearest, ties to even; NaN stays NaN.
__device__ inline void from_float(float value, BF16* result) {
  uint32_t bits = bits_of(value);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  result->bits = static_cast<uint16_t>(is_nan ? (bits >> 16) | 0x40u : rounded);
}
__device__ inline void from_float(float value, F16* result) {
  uint32_t bits = bits_of(value);
  uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {
    half = 0x7c00u;  // what rounds past the largest half
  } else if (magnitude >= 0x38800000u) {
    half = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  } else {
    // Adding 0.5 leaves a subnormal half, rounded, in the low bits: its unit is 2^-24.
    half = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
  }
  result->bits = static_cast<uint16_t>(half | ((bits >> 16) & 0x8000u));
}

/// `value` as it would be stored.
template <typename T>
__device__ inline T rounded(float value) {
  T result;
  from_float(value, &result);
  return result;
}

/// What one access moves at most.
struct alignas(16) Bytes16 {
  uint32_t words[4];
};

/// `Width` elements (1 or 8) as fp32. Eight of them start at a multiple of 16 bytes.
template <int Width, typename T>
__device__ inline void load_pack(const T* source, float (&values)[Width]) {
  if constexpr (Width == 1) {
    values[0] = to_float(*source);
  } else {
    constexpr int kParts = Width * static_cast<int>(sizeof(T)) / 16;
    union {
      Bytes16 parts[kParts];
      T elements[Width];
    } pack;
    for (int i = 0; i < kParts; ++i) pack.parts[i] = reinterpret_cast<const Bytes16*>(source)[i];
    for (int i = 0; i < Width; ++i) values[i] = to_float(pack.elements[i]);
  }
}

/// Writes `Width` numbers at once.
template <int Width, typename T>
__device__ inline void store_pack(T* target, const float (&values)[Width]) {
  if constexpr (Width == 1) {
    from_float(values[0], target);
  } else {
    constexpr int kParts = Width * static_cast<int>(sizeof(T)) / 16;
    union {
      Bytes16 parts[kParts];
      T elements[Width];
    } pack;
    for (int i = 0; i < Width; ++i) from_float(values[i], &pack.elements[i]);
    for (int i = 0; i < kParts; ++i) reinterpret_cast<Bytes16*>(target)[i] = pack.parts[i];
  }
}

/// Writes, or adds in fp32 and rounds once.
template <int Width, typename T>
__device__ inline void write_pack(T* target, float (&values)[Width], bool add_to) {
  if (add_to) {
    float old[Width];
    load_pack(target, old);
    for (int i = 0; i < Width; ++i) values[i] += old[i];
  }
  store_pack(target, values);
}

/// Whether all addresses are multiples of 16.
template <typename... Pointers>
__device__ inline bool all_aligned(Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) | ...) & 15) == 0;
}

constexpr int kPack = 8;

/// A number of elements as a type, for overloads.
template <int Width>
struct PackWidth {
  static constexpr int value = Width;
};

/// body(PackWidth, index of its first element) for packs that cover [0, count), shared out over
/// `threads`; eight at a time where `wide`.
template <typename Body>
__device__ inline void for_packs(int64_t count, bool wide, int64_t thread, int64_t threads,
                                 const Body& body) {
  int64_t done = 0;
  if (wide) {
    for (int64_t i = thread; i < count / kPack; i += threads) body(PackWidth<kPack>(), i * kPack);
    done = count / kPack * kPack;
  }
  for (int64_t i = done + thread; i < count; i += threads) body(PackWidth<1>(), i);
}

/// The same over the whole grid.
template <typename Body>
__device__ inline void for_grid_packs(int64_t count, bool wide, const Body& body) {
  int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for_packs(count, wide, static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, threads,
            body);
}

/// Every kernel template for the three storage types: INSTANTIATE(T, suffix).
#define STAGECOACH_FOR_STORAGE(INSTANTIATE) \
  INSTANTIATE(float, fp32)                  \
  INSTANTIATE(BF16, bf16)                   \
  INSTANTIATE(F16, fp16)

}  // namespace stagecoach
