// Loads and stores of the formats host state is kept in, for code compiled once a SIMD target: no
// include guard of the usual kind, Highway includes it again for each target.
#if defined(STAGECOACH_SIMD_FORMATS) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_SIMD_FORMATS
#undef STAGECOACH_SIMD_FORMATS
#else
#define STAGECOACH_SIMD_FORMATS
#endif

#include <hwy/highway.h>
#include <type_traits>

#include "core/dtype.h"
#include "train/gradient_sources.h"

/// For the target in turn.
HWY_BEFORE_NAMESPACE();
namespace stagecoach::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// As many fp32 numbers as the target works on at once, and their bits.
using Floats = hn::ScalableTag<float>;
using Words = hn::RebindToSigned<Floats>;
using FloatVector = hn::Vec<Floats>;
using WordVector = hn::Vec<Words>;

/// Numbers in a vector.
HWY_ATTR inline int64_t lane_count() {
  return static_cast<int64_t>(hn::Lanes(Floats()));
}

/// Bits of the numbers without their signs: compared as whole numbers they are in order of size.
HWY_ATTR inline WordVector magnitude_bits(FloatVector values) {
  return hn::And(hn::BitCast(Words(), values), hn::Set(Words(), 0x7fffffff));
}

/// Lanes of `count` 16-bit elements as whole numbers from 0 on, and back (must be below 2^16).
HWY_ATTR inline WordVector load_halves(const uint16_t* source) {
  const hn::Rebind<uint16_t, Floats> halves;
  return hn::PromoteTo(Words(), hn::LoadU(halves, source));
}
HWY_ATTR inline void store_halves(WordVector values, uint16_t* target) {
  const hn::Rebind<uint16_t, Floats> halves;
  hn::StoreU(hn::DemoteTo(halves, values), halves, target);
}

/// One vector of numbers as fp32, exactly.
HWY_ATTR inline FloatVector load_floats(const float* source) {
  return hn::LoadU(Floats(), source);
}
HWY_ATTR inline FloatVector load_floats(const BFloat16* source) {
  return hn::BitCast(Floats(), hn::ShiftLeft<16>(load_halves(&source->bits)));
}
HWY_ATTR inline FloatVector load_floats(const Float16* source) {
  const Words words;
  WordVector stored = load_halves(&source->bits);
  WordVector magnitude = hn::And(stored, hn::Set(words, 0x7fff));
  WordVector shifted = hn::ShiftLeft<13>(magnitude);
  WordVector normal = hn::Add(shifted, hn::Set(words, 112 << 23));
  WordVector special = hn::Or(shifted, hn::Set(words, 0x7f800000));
  // Subnormal halves are whole multiples of 2^-24 and normal as fp32.
  FloatVector multiple = hn::ConvertTo(Floats(), magnitude);
  WordVector subnormal = hn::BitCast(words, hn::Mul(multiple, hn::Set(Floats(), 0x1p-24f)));
  WordVector bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(words, 0x400)), subnormal, normal);
  bits = hn::IfThenElse(hn::Gt(magnitude, hn::Set(words, 0x7bff)), special, bits);
  WordVector sign = hn::ShiftLeft<16>(hn::And(stored, hn::Set(words, 0x8000)));
  return hn::BitCast(Floats(), hn::Or(bits, sign));
}

/// Stores one vector, rounded to nearest, ties to even, with whole-number arithmetic only, which
/// no mode of the processor changes. NaN is not expected; overflow becomes infinity.
HWY_ATTR inline void store_floats(FloatVector values, float* target) {
  hn::StoreU(values, Floats(), target);
}
HWY_ATTR inline void store_floats(FloatVector values, BFloat16* target) {
  const Words words;
  WordVector bits = hn::BitCast(words, values);
  WordVector odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
  bits = hn::Add(bits, hn::Add(hn::Set(words, 0x7fff), odd));
  store_halves(hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 0xffff)), &target->bits);
}
HWY_ATTR inline void store_floats(FloatVector values, Float16* target) {
  const Words words;
  WordVector magnitude = magnitude_bits(values);
  WordVector odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(words, 1));
  WordVector rounded = hn::Add(magnitude, hn::Add(hn::Set(words, 0xfff - 0x38000000), odd));
  rounded = hn::ShiftRight<13>(rounded);
  // Adding 0.5 aligns the fraction of a subnormal half to 2^-24 and rounds it.
  FloatVector shifted = hn::Add(hn::BitCast(Floats(), magnitude), hn::Set(Floats(), 0.5f));
  WordVector subnormal = hn::Sub(hn::BitCast(words, shifted), hn::Set(words, 0x3f000000));
  WordVector half =
      hn::IfThenElse(hn::Lt(magnitude, hn::Set(words, 0x38800000)), subnormal, rounded);
  half =
      hn::IfThenElse(hn::Gt(magnitude, hn::Set(words, 0x477fefff)), hn::Set(words, 0x7c00), half);
  WordVector sign = hn::And(hn::ShiftRight<16>(hn::BitCast(words, values)), hn::Set(words, 0x8000));
  store_halves(hn::Or(half, sign), &target->bits);
}

/// `count` numbers as fp32, and back.
template <typename Storage>
HWY_ATTR void decode_floats(const Storage* source, int64_t count, float* values) {
  int64_t i = 0;
  for (; i + lane_count() <= count; i += lane_count()) {
    hn::StoreU(load_floats(source + i), Floats(), values + i);
  }
  for (; i < count; ++i) values[i] = to_float(source[i]);
}
template <typename Storage>
HWY_ATTR void encode_floats(const float* values, int64_t count, Storage* target) {
  int64_t i = 0;
  for (; i + lane_count() <= count; i += lane_count()) {
    store_floats(hn::LoadU(Floats(), values + i), target + i);
  }
  for (; i < count; ++i) target[i] = from_float<Storage>(values[i]);
}

/// sums[i] = element `first` + i of all sources, added in fp32 in their order.
template <typename Storage>
HWY_ATTR void add_up_sources(const void* const* sources, int64_t source_count, int64_t first,
                             int64_t count, float* sums) {
  auto source = [=](int64_t index) { return static_cast<const Storage*>(sources[index]) + first; };
  int64_t i = 0;
  for (; i + lane_count() <= count; i += lane_count()) {
    FloatVector sum = load_floats(source(0) + i);
    for (int64_t k = 1; k < source_count; ++k) sum = hn::Add(sum, load_floats(source(k) + i));
    hn::StoreU(sum, Floats(), sums + i);
  }
  for (; i < count; ++i) {
    sums[i] = to_float(source(0)[i]);
    for (int64_t k = 1; k < source_count; ++k) sums[i] += to_float(source(k)[i]);
  }
}

/// Calls `function` with the typed address of element `first` of `data`.
template <typename Function>
HWY_INLINE auto with_type(DType dtype, const void* data, int64_t first, Function function) {
  if (dtype == DType::kBF16) return function(static_cast<const BFloat16*>(data) + first);
  if (dtype == DType::kF16) return function(static_cast<const Float16*>(data) + first);
  return function(static_cast<const float*>(data) + first);
}

/// The same for sources of any type.
inline void add_up(const GradientSources& gradients, int64_t first, int64_t count, float* sums) {
  with_type(gradients.dtype, nullptr, 0, [&](auto* typed) {
    using Storage = std::remove_cv_t<std::remove_pointer_t<decltype(typed)>>;
    add_up_sources<Storage>(gradients.sources.data(),
                            static_cast<int64_t>(gradients.sources.size()), first, count, sums);
  });
}

}  // namespace stagecoach::HWY_NAMESPACE
/// As before.
HWY_AFTER_NAMESPACE();

#endif
