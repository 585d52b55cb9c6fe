#include "core/dtype.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace stagecoach {
namespace {

constexpr uint32_t kPatterns16 = 65536;

bool same_or_both_nan(float left, float right) {
  if (std::isnan(left) || std::isnan(right)) return std::isnan(left) && std::isnan(right);
  return std::bit_cast<uint32_t>(left) == std::bit_cast<uint32_t>(right);
}

/// Value of a half from its definition, in doubles.
double half_value(uint16_t bits) {
  int exponent = (bits >> 10) & 31;
  double fraction = bits & 1023;
  double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, exponent - 25);
  if (exponent == 31) magnitude = fraction == 0 ? INFINITY : NAN;
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

/// Nearest half with ties to even, by arithmetic in doubles instead of on bits.
uint16_t half_by_doubles(float value) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  double magnitude = std::fabs(static_cast<double>(value));
  if (magnitude >= 65520.0) return sign | 0x7c00;  // halfway to the next, absent, number
  int exponent = -14;
  while (exponent < 15 && magnitude >= std::ldexp(1.0, exponent + 1)) ++exponent;
  double steps = std::nearbyint(magnitude / std::ldexp(1.0, exponent - 10));
  // Steps of 2^(e-10): 1024 is the implicit bit, and a carry into the exponent adds up by itself.
  uint32_t bits = static_cast<uint32_t>(steps) + (static_cast<uint32_t>(exponent + 14) << 10);
  return static_cast<uint16_t>(sign | bits);
}

TEST(DType, SizesAndNames) {
  EXPECT_EQ(dtype_size_bytes(DType::kF32), 4);
  EXPECT_EQ(dtype_size_bytes(DType::kI32), 4);
  EXPECT_EQ(dtype_size_bytes(DType::kBF16), 2);
  EXPECT_EQ(dtype_size_bytes(DType::kF16), 2);
  EXPECT_EQ(dtype_size_bytes(DType::kF64), 8);
  EXPECT_EQ(dtype_size_bytes(DType::kU64), 8);
  EXPECT_EQ(dtype_name(DType::kBF16), "bf16");
  EXPECT_EQ(dtype_name(DType::kU64), "uint64");
  EXPECT_TRUE(dtype_is_float(DType::kF64));
  EXPECT_FALSE(dtype_is_float(DType::kI32));
}

TEST(DType, ParsesComputeTypes) {
  for (DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    EXPECT_EQ(*parse_compute_dtype(dtype_name(dtype)), dtype);
  }
  Result<DType> refused = parse_compute_dtype("fp8");
  ASSERT_FALSE(refused.is_ok());
  EXPECT_NE(refused.status().message().find("'fp8'"), std::string::npos);
}

TEST(DType, EveryBFloat16RoundTrips) {
  for (uint32_t bits = 0; bits < kPatterns16; ++bits) {
    BFloat16 value{static_cast<uint16_t>(bits)};
    float wide = to_float(value);
    ASSERT_EQ(std::bit_cast<uint32_t>(wide), bits << 16);
    ASSERT_TRUE(same_or_both_nan(to_float(to_bfloat16(wide)), wide)) << bits;
  }
}

TEST(DType, EveryFloat16HasItsValueAndRoundTrips) {
  for (uint32_t bits = 0; bits < kPatterns16; ++bits) {
    Float16 value{static_cast<uint16_t>(bits)};
    float wide = to_float(value);
    ASSERT_TRUE(same_or_both_nan(wide, static_cast<float>(half_value(value.bits)))) << bits;
    Float16 back = to_float16(wide);
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(to_float(back))) << bits;
    } else {
      ASSERT_EQ(back.bits, bits);
    }
  }
}

TEST(DType, BFloat16RoundsTiesToEven) {
  auto round = [](uint32_t bits) { return to_bfloat16(std::bit_cast<float>(bits)).bits; };
  EXPECT_EQ(round(0x3f808000), 0x3f80);  // tie, even below
  EXPECT_EQ(round(0x3f818000), 0x3f82);  // tie, even above
  EXPECT_EQ(round(0x3f807fff), 0x3f80);
  EXPECT_EQ(round(0x3f808001), 0x3f81);
  EXPECT_EQ(round(0x7f7fffff), 0x7f80);  // largest fp32 overflows
  EXPECT_EQ(round(0xff7fffff), 0xff80);
  EXPECT_EQ(round(0x00008000), 0x0000);  // subnormals round alike
  EXPECT_EQ(round(0x80018000), 0x8002);
  EXPECT_EQ(round(0x7f800000), 0x7f80);
  // A NaN whose kept bits are zero must not turn into infinity.
  EXPECT_TRUE(std::isnan(to_float(BFloat16{round(0x7f800001)})));
  EXPECT_TRUE(std::isnan(to_float(BFloat16{round(0xffffffff)})));
}

TEST(DType, Float16AgreesWithArithmeticInDoublesAtEdges) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    double below = half_value(static_cast<uint16_t>(bits));
    double above = bits + 1 == 0x7c00 ? 65536.0 : half_value(static_cast<uint16_t>(bits + 1));
    float middle = static_cast<float>((below + above) / 2);  // exact in fp32
    for (float value : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, INFINITY)}) {
      ASSERT_EQ(to_float16(value).bits, half_by_doubles(value)) << value;
      ASSERT_EQ(to_float16(-value).bits, half_by_doubles(-value)) << -value;
    }
  }
}

TEST(DType, Float16AgreesWithArithmeticInDoublesOnRandomPatterns) {
  std::mt19937 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(value)) continue;
    ASSERT_EQ(to_float16(value).bits, half_by_doubles(value)) << value;
  }
}

TEST(DType, Float16KeepsInfinityAndNan) {
  EXPECT_EQ(to_float16(INFINITY).bits, 0x7c00);
  EXPECT_EQ(to_float16(-INFINITY).bits, 0xfc00);
  EXPECT_TRUE(std::isnan(to_float(to_float16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(to_float(to_float16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(to_float16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(to_float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_float16(-0.0f).bits, 0x8000);
}

TEST(DType, TemplatesFollowTheStorageType) {
  EXPECT_EQ(dtype_of<float>::value, DType::kF32);
  EXPECT_EQ(dtype_of<BFloat16>::value, DType::kBF16);
  EXPECT_EQ(dtype_of<Float16>::value, DType::kF16);
  EXPECT_EQ(from_float<float>(1.1f), 1.1f);
  EXPECT_EQ(from_float<BFloat16>(1.0f).bits, 0x3f80);
  EXPECT_EQ(from_float<Float16>(1.0f).bits, 0x3c00);
}

}  // namespace
}  // namespace stagecoach
