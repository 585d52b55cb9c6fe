#pragma once

#include <cstring>

#include "core/dtype.h"

namespace stagecoach {

/// The element at `address` as fp32.
inline float read_number(DType dtype, const std::byte* address) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, address, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, address, sizeof(bits));
  return dtype == DType::kBF16 ? to_float(BFloat16{bits}) : to_float(Float16{bits});
}

/// Rounds `value` into the element at `address`.
inline void write_number(DType dtype, float value, std::byte* address) {
  if (dtype == DType::kF32) {
    std::memcpy(address, &value, sizeof(value));
    return;
  }
  uint16_t bits = dtype == DType::kBF16 ? to_bfloat16(value).bits : to_float16(value).bits;
  std::memcpy(address, &bits, sizeof(bits));
}

/// `value` as an element of `dtype` holds it.
inline float rounded(DType dtype, float value) {
  std::byte bytes[sizeof(float)];
  write_number(dtype, value, bytes);
  return read_number(dtype, bytes);
}

}  // namespace stagecoach
