// Numbers of one byte with a shared scale, for code compiled once a SIMD target: see
// simd_formats.h.
#if defined(STAGECOACH_SIMD_BYTE_FLOATS) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_SIMD_BYTE_FLOATS
#undef STAGECOACH_SIMD_BYTE_FLOATS
#else
#define STAGECOACH_SIMD_BYTE_FLOATS
#endif

#include <hwy/highway.h>
#include <type_traits>

#include "train/simd_formats.h"

/// For the target in turn.
HWY_BEFORE_NAMESPACE();
namespace stagecoach::HWY_NAMESPACE {

using Bytes = hn::Rebind<uint8_t, Floats>;

/// Numbers of one byte: `kFractionBits` of fraction below an exponent whose all-ones value means
/// 1 to 2 times the unit; the exponent zero has no leading one.
template <int kExponents>
struct ByteFloat {
  static constexpr int kFractionBits = 3;
  static constexpr float kLargest = 1.875f;
  static constexpr int32_t kTop = (kExponents << kFractionBits) - 1;
  static constexpr int32_t kBias = (128 - kExponents) << kFractionBits;
  static constexpr int kDrop = 23 - kFractionBits;
  /// The unit of codes without a leading one.
  static constexpr float kSmallest = 1.0f / static_cast<float>(int64_t{1} << (kExponents + 1));

  /// `magnitudes` are at most kLargest, up to rounding.
  static HWY_ATTR WordVector encode(FloatVector magnitudes) {
    const Words words;
    WordVector bits = hn::BitCast(words, magnitudes);
    WordVector odd = hn::And(hn::ShiftRight<kDrop>(bits), hn::Set(words, 1));
    WordVector half = hn::Set(words, (1 << (kDrop - 1)) - 1);
    WordVector normal = hn::ShiftRight<kDrop>(hn::Add(bits, hn::Add(half, odd)));
    normal = hn::Sub(normal, hn::Set(words, kBias));
    WordVector small = hn::NearestInt(hn::Mul(magnitudes, hn::Set(Floats(), 1.0f / kSmallest)));
    WordVector first_normal = hn::Set(words, kBias + (1 << kFractionBits));
    WordVector code =
        hn::IfThenElse(hn::Lt(hn::ShiftRight<kDrop>(bits), first_normal), small, normal);
    return hn::Min(code, hn::Set(words, kTop));
  }
  static HWY_ATTR FloatVector decode(WordVector codes) {
    const Words words;
    WordVector normal = hn::ShiftLeft<kDrop>(hn::Add(codes, hn::Set(words, kBias)));
    FloatVector small = hn::Mul(hn::ConvertTo(Floats(), codes), hn::Set(Floats(), kSmallest));
    auto is_small = hn::Lt(codes, hn::Set(words, 1 << kFractionBits));
    return hn::IfThenElse(hn::RebindMask(Floats(), is_small), small, hn::BitCast(Floats(), normal));
  }
};
using SignedByteFloat = ByteFloat<16>;
using UnsignedByteFloat = ByteFloat<32>;

/// Of values that go on with zeros up to whole vectors.
HWY_ATTR inline float largest_magnitude(const float* values, int64_t count) {
  WordVector largest = hn::Zero(Words());
  for (int64_t i = 0; i < count; i += lane_count()) {
    largest = hn::Max(largest, magnitude_bits(load_floats(values + i)));
  }
  return hn::GetLane(hn::BitCast(Floats(), hn::MaxOfLanes(Words(), largest)));
}

/// One scale's elements; `values` and `codes` go on with zeros up to whole vectors.
template <bool kSigned>
HWY_ATTR void encode_bytes(const float* values, int64_t count, uint8_t* codes, float* scale) {
  using Format = std::conditional_t<kSigned, SignedByteFloat, UnsignedByteFloat>;
  const Words words;
  *scale = largest_magnitude(values, count) / Format::kLargest;
  FloatVector divisor = hn::Set(Floats(), *scale > 0 ? *scale : 1.0f);
  for (int64_t i = 0; i < count; i += lane_count()) {
    FloatVector value = load_floats(values + i);
    WordVector code = Format::encode(hn::Div(hn::Abs(value), divisor));
    if constexpr (kSigned) {
      WordVector sign = hn::ShiftRight<24>(hn::BitCast(words, value));
      code = hn::Or(code, hn::And(sign, hn::Set(words, 0x80)));
    } else {
      // The denominator of an update must not vanish because a neighbour is large.
      auto is_zero = hn::RebindMask(words, hn::Eq(value, hn::Zero(Floats())));
      code = hn::IfThenZeroElse(is_zero, hn::Max(code, hn::Set(words, 1)));
    }
    hn::StoreU(hn::DemoteTo(Bytes(), code), Bytes(), codes + i);
  }
}

/// Whole vectors of `codes` are read and of `values` written.
template <bool kSigned>
HWY_ATTR void decode_bytes(const uint8_t* codes, int64_t count, float scale, float* values) {
  using Format = std::conditional_t<kSigned, SignedByteFloat, UnsignedByteFloat>;
  const Words words;
  for (int64_t i = 0; i < count; i += lane_count()) {
    WordVector code = hn::PromoteTo(words, hn::LoadU(Bytes(), codes + i));
    WordVector magnitude = kSigned ? hn::And(code, hn::Set(words, 0x7f)) : code;
    FloatVector value = hn::Mul(Format::decode(magnitude), hn::Set(Floats(), scale));
    if constexpr (kSigned) {
      WordVector sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(words, 0x80)));
      value = hn::Or(value, hn::BitCast(Floats(), sign));
    }
    store_floats(value, values + i);
  }
}

}  // namespace stagecoach::HWY_NAMESPACE
/// As before.
HWY_AFTER_NAMESPACE();

#endif
