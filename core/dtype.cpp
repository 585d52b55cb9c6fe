#include "core/dtype.h"

#include <cmath>
#include <fmt/format.h>

namespace stagecoach {

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "fp16";
    case DType::kI32:
      return "int32";
    case DType::kF64:
      return "fp64";
    case DType::kU64:
      return "uint64";
    case DType::kI16:
      return "int16";
  }
  return "unknown";
}

Result<DType> parse_compute_dtype(std::string_view text) {
  if (text == "bf16") return DType::kBF16;
  if (text == "fp16") return DType::kF16;
  if (text == "fp32") return DType::kF32;
  return invalid_argument(fmt::format("dtype '{}' is unknown; use bf16, fp16 or fp32", text));
}

float to_float(Float16 value) {
  uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  uint32_t exponent = (value.bits >> 10) & 0x1fu;
  uint32_t fraction = value.bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent == 0) {
    float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
}

Float16 to_float16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return Float16{static_cast<uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return Float16{static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {
    // Subnormal half: adding 0.5 aligns the fraction to 2^-24 and rounds to nearest even.
    float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return Float16{static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return Float16{static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

}  // namespace stagecoach
