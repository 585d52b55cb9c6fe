#include "memory/split_master.h"

#include "core/multiversion.h"

namespace stagecoach {

namespace {

constexpr uint32_t kMagnitude = 0x7fffffffu;
constexpr uint32_t kInfinity = 0x7f800000u;

// Whole-number loops: every version gives the same bits.

STAGECOACH_MULTIVERSION
int64_t count_non_finite(const float* values, int64_t count) {
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    found += (std::bit_cast<uint32_t>(values[i]) & kMagnitude) >= kInfinity ? 1 : 0;
  }
  return found;
}

STAGECOACH_MULTIVERSION
void split_finite(const float* __restrict values, BFloat16* __restrict high,
                  int16_t* __restrict remainder, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    SplitFloat halves = split_float(values[i]);
    high[i] = halves.high;
    remainder[i] = halves.remainder;
  }
}

STAGECOACH_MULTIVERSION
void join(const BFloat16* __restrict high, const int16_t* __restrict remainder,
          float* __restrict values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = join_float({high[i], remainder[i]});
}

}  // namespace

int64_t split_floats(const float* values, BFloat16* high, int16_t* remainder, int64_t count) {
  int64_t refused = count_non_finite(values, count);
  if (refused == 0) {
    split_finite(values, high, remainder, count);
    return 0;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (std::isfinite(values[i])) split_finite(values + i, high + i, remainder + i, 1);
  }
  return refused;
}

void join_floats(const BFloat16* high, const int16_t* remainder, float* values, int64_t count) {
  join(high, remainder, values, count);
}

}  // namespace stagecoach
