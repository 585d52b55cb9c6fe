#include "memory/split_master.h"

#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace stagecoach {
namespace {

bool is_finite_pattern(uint32_t bits) {
  return (bits & 0x7f800000u) != 0x7f800000u;
}

/// Splits and joins `bits` in place of poisoned memory; returns how many came back changed. Adds to
/// `refused` how many were refused.
int64_t count_changed(const std::vector<uint32_t>& bits, int64_t& refused) {
  size_t count = bits.size();
  static std::vector<float> values, joined;
  static std::vector<BFloat16> high;
  static std::vector<int16_t> remainder;
  values.resize(count);
  std::memcpy(values.data(), bits.data(), count * sizeof(float));
  high.assign(count, BFloat16{0x5a5a});
  remainder.assign(count, 0x5a5a);
  joined.assign(count, -1.0f);
  refused += split_floats(values.data(), high.data(), remainder.data(), int64_t(count));
  join_floats(high.data(), remainder.data(), joined.data(), int64_t(count));
  int64_t changed = 0;
  const auto* out = reinterpret_cast<const uint32_t*>(joined.data());
  uint32_t poison = std::bit_cast<uint32_t>(join_float({BFloat16{0x5a5a}, 0x5a5a}));
  for (size_t i = 0; i < count; ++i) {
    uint32_t expected = is_finite_pattern(bits[i]) ? bits[i] : poison;
    changed += out[i] == expected ? 0 : 1;
  }
  return changed;
}

TEST(SlowSplitMaster, EveryFiniteBitPatternComesBack) {
  constexpr size_t kChunk = 1 << 16;
  std::vector<uint32_t> bits(kChunk);
  int64_t refused = 0;
  for (uint64_t first = 0; first < (uint64_t{1} << 32); first += kChunk) {
    for (size_t i = 0; i < kChunk; ++i) bits[i] = static_cast<uint32_t>(first + i);
    ASSERT_EQ(count_changed(bits, refused), 0) << "patterns from " << first;
  }
  // Two signs, one exponent, all fractions.
  EXPECT_EQ(refused, int64_t{2} << 23);
}

TEST(SplitMaster, BoundariesOfEveryExponentComeBack) {
  std::vector<uint32_t> bits;
  for (uint32_t top = 0; top < 512; ++top) {
    for (int32_t around : {0, 0x7fff, 0x8000, 0x8001, 0xffff, 0x17fff, 0x18000, 0x7f7fff}) {
      for (int32_t step = -3; step <= 3; ++step) {
        bits.push_back((top << 23) + static_cast<uint32_t>(around + step));
      }
    }
  }
  std::mt19937 engine(11);
  for (int i = 0; i < 1'000'003; ++i) bits.push_back(static_cast<uint32_t>(engine()));
  int64_t refused = 0, expected = 0;
  for (uint32_t pattern : bits) expected += is_finite_pattern(pattern) ? 0 : 1;
  EXPECT_EQ(count_changed(bits, refused), 0);
  EXPECT_EQ(refused, expected);
  EXPECT_GT(refused, 0);
}

TEST(SplitMaster, HighHalfIsTheNearestBf16WithTiesAwayFromZero) {
  std::mt19937 engine(12);
  for (int i = 0; i < 200'000; ++i) {
    uint32_t bits = static_cast<uint32_t>(engine());
    if (i % 4 == 0) bits = (bits & 0xffff0000u) | 0x8000u;  // ties
    // Beyond the largest bf16 there is no neighbour to compare with.
    if ((bits & 0x7fffffffu) >= 0x7f7f0000u) continue;
    double value = std::bit_cast<float>(bits);
    double below = std::bit_cast<float>(bits & 0xffff0000u);
    double above = std::bit_cast<float>((bits & 0xffff0000u) + 0x10000u);
    double nearest = std::abs(value - below) < std::abs(value - above) ? below : above;
    ASSERT_EQ(double{to_float(split_float(std::bit_cast<float>(bits)).high)}, nearest) << bits;
  }
}

TEST(SplitMaster, NonFiniteValuesLeaveTheStoreAsItWas) {
  std::vector<float> values = {1.5f, INFINITY, -2.0f, NAN, -INFINITY, 3.0f};
  std::vector<BFloat16> high(values.size(), BFloat16{0x4040});
  std::vector<int16_t> remainder(values.size(), 7);
  EXPECT_EQ(split_floats(values.data(), high.data(), remainder.data(), 6), 3);
  for (size_t i = 0; i < values.size(); ++i) {
    float kept = join_float({BFloat16{0x4040}, 7});
    EXPECT_EQ(join_float({high[i], remainder[i]}), std::isfinite(values[i]) ? values[i] : kept);
  }
}

TEST(SplitMaster, EveryLengthAndAlignment) {
  std::mt19937 engine(13);
  std::normal_distribution<float> normal;
  for (int64_t count = 0; count < 70; ++count) {
    for (int64_t offset : {0, 1, 3}) {
      std::vector<float> values(count + 4), joined(count + 4, -1.0f);
      std::vector<BFloat16> high(count + 4, BFloat16{1});
      std::vector<int16_t> remainder(count + 4, 1);
      for (float& value : values) value = normal(engine);
      split_floats(values.data() + offset, high.data() + offset, remainder.data() + offset, count);
      join_floats(high.data() + offset, remainder.data() + offset, joined.data() + offset, count);
      for (int64_t i = 0; i < count + 4; ++i) {
        bool inside = i >= offset && i < offset + count;
        EXPECT_EQ(joined[i], inside ? values[i] : -1.0f);
        if (inside) continue;
        EXPECT_EQ(high[i].bits, 1);
        EXPECT_EQ(remainder[i], 1);
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach
