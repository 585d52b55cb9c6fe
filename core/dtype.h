#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "core/bytes.h"
#include "core/status.h"

namespace stagecoach {

/// Element types of tensors.
enum class DType : uint8_t { kF32, kBF16, kF16, kI32, kF64, kU64, kI16 };

/// Bytes of one element.
constexpr ByteCount dtype_size_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
    case DType::kI16:
      return 2;
    case DType::kF64:
    case DType::kU64:
      return 8;
  }
  return 0;
}

/// "fp32", "bf16", "fp16", "int32", "fp64", "uint64", "int16".
std::string_view dtype_name(DType dtype);

/// Parses "bf16", "fp16" or "fp32" as a configuration spells them.
Result<DType> parse_compute_dtype(std::string_view text);

/// Whether elements are floating-point numbers.
constexpr bool dtype_is_float(DType dtype) {
  return dtype != DType::kI32 && dtype != DType::kU64 && dtype != DType::kI16;
}

/// Upper half of an fp32: 8 exponent bits, 7 fraction bits.
struct BFloat16 {
  uint16_t bits = 0;
};

/// IEEE half precision.
struct Float16 {
  uint16_t bits = 0;
};

/// The value as fp32: exact for every type.
inline float to_float(float value) {
  return value;
}
inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

/// Nearest, ties to even; NaN stays NaN (quiet).
inline BFloat16 to_bfloat16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return BFloat16{static_cast<uint16_t>((bits >> 16) | 0x0040u)};
  }
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return BFloat16{static_cast<uint16_t>(bits >> 16)};
}

/// Exact.
float to_float(Float16 value);
/// Nearest, ties to even; overflow becomes infinity, NaN stays NaN.
Float16 to_float16(float value);

/// Storage type -> DType, for templates over storage.
template <typename T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct dtype_of<BFloat16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct dtype_of<Float16> {
  static constexpr DType value = DType::kF16;
};

/// Rounds an fp32 into storage type T (nearest, ties to even).
template <typename T>
T from_float(float value);
template <>
inline float from_float<float>(float value) {
  return value;
}
template <>
inline BFloat16 from_float<BFloat16>(float value) {
  return to_bfloat16(value);
}
template <>
inline Float16 from_float<Float16>(float value) {
  return to_float16(value);
}

}  // namespace stagecoach
