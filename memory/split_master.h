#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/dtype.h"

namespace stagecoach {

/// An fp32 number in two halves of 2 bytes, so that the half devices read needs no copy of its own.
/// `high` is the number rounded to bf16, nearest, ties away from zero; `remainder` is what is left,
/// in units of the fp32's last place. Plain data.
struct SplitFloat {
  BFloat16 high;
  int16_t remainder = 0;
};

/// The halves of a finite `value`; joining them gives its bits back, also of zeros with a sign and
/// of denormals. A value past the largest bf16 has infinity as its high half, as any rounding
/// would. An infinity or NaN must not get here: its halves would join to another number.
constexpr SplitFloat split_float(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  return {BFloat16{static_cast<uint16_t>((bits + 0x8000u) >> 16)},
          static_cast<int16_t>(static_cast<uint16_t>(bits & 0xffffu))};
}

/// The number whose halves these are.
constexpr float join_float(SplitFloat halves) {
  uint32_t high = static_cast<uint32_t>(halves.high.bits) << 16;
  return std::bit_cast<float>(high + static_cast<uint32_t>(int32_t{halves.remainder}));
}

/// Splits `count` numbers. Where a value is infinite or NaN both halves stay as they were; returns
/// how many those are. Ranges must not overlap. Thread rule: disjoint ranges at once.
int64_t split_floats(const float* values, BFloat16* high, int16_t* remainder, int64_t count);

/// Joins `count` numbers. Ranges must not overlap. Thread rule: disjoint ranges at once.
void join_floats(const BFloat16* high, const int16_t* remainder, float* values, int64_t count);

}  // namespace stagecoach
