#include "memory/moments.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/check.h"
#include "core/dtype.h"

namespace stagecoach {

namespace {

int64_t scales_of(int64_t element_count) {
  return (element_count + kMomentScaleElements - 1) / kMomentScaleElements;
}

/// Three bits of fraction below `exponents` exponents, the largest of which means 1 to 2: what
/// train/simd_byte_floats.h encodes.
float decode_magnitude(int code, int exponents) {
  constexpr int kFractionBits = 3, kFloatFractionBits = 23, kFloatBias = 127;
  if (code < 1 << kFractionBits) {
    return static_cast<float>(code) / static_cast<float>(int64_t{1} << (exponents + 1));
  }
  int bias = (kFloatBias + 1 - exponents) << kFractionBits;
  return std::bit_cast<float>((code + bias) << (kFloatFractionBits - kFractionBits));
}

float decode_byte(Moment moment, uint8_t code, float scale) {
  if (moment == Moment::kSecond) return decode_magnitude(code, 32) * scale;
  float magnitude = decode_magnitude(code & 0x7f, 16) * scale;
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

}  // namespace

int64_t moment_scale_count(std::span<const int64_t> parts, int64_t element_count) {
  if (parts.empty()) return scales_of(element_count);
  int64_t count = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    count += scales_of((i + 1 < parts.size() ? parts[i + 1] : element_count) - parts[i]);
  }
  return count;
}

int64_t moment_scale_index(std::span<const int64_t> parts, int64_t offset) {
  int64_t begin = 0, index = 0;
  for (size_t i = 0; i < parts.size() && parts[i] <= offset; ++i) {
    if (i > 0) index += scales_of(parts[i] - begin);
    begin = parts[i];
  }
  STAGECOACH_CHECK((offset - begin) % kMomentScaleElements == 0);
  return index + (offset - begin) / kMomentScaleElements;
}

void decode_moment(Moment moment, MomentFormat format, const MomentView& view,
                   std::span<float> out) {
  if (format == MomentFormat::kFloat32) {
    std::memcpy(out.data(), view.values.data(), out.size_bytes());
    return;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (format == MomentFormat::kBFloat16) {
      BFloat16 value;
      std::memcpy(&value, &view.values[i * sizeof(value)], sizeof(value));
      out[i] = to_float(value);
    } else {
      out[i] = decode_byte(moment, static_cast<uint8_t>(view.values[i]),
                           view.scales[i / kMomentScaleElements]);
    }
  }
}

}  // namespace stagecoach
