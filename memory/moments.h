#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/bytes.h"

namespace stagecoach {

/// What moments are kept as. All but fp32 change numerics.
enum class MomentFormat : uint8_t {
  kFloat32,
  kBFloat16,  ///< rounded to nearest, ties to even, after every update
  /// One byte an element and an fp32 scale per `kMomentScaleElements`: first moments have a sign, 4
  /// bits of exponent and 3 of fraction below the largest of their scale, second moments 5 and 3,
  /// and never become zero unless they are.
  kBlockwise8,
};
inline constexpr int64_t kMomentScaleElements = 256;

/// What an optimizer remembers of every parameter's gradients.
struct MomentOptions {
  int count = 2;  ///< 0 to 2 numbers a parameter
  MomentFormat format = MomentFormat::kFloat32;
};

/// Which of them: the mean of gradients, or of their squares.
enum class Moment : uint8_t { kFirst, kSecond };

/// Bytes of one moment of one element, without scales.
constexpr ByteCount moment_value_bytes(MomentFormat format) {
  if (format == MomentFormat::kFloat32) return 4;
  return format == MomentFormat::kBFloat16 ? 2 : 1;
}
/// With them, where parameters are long.
constexpr double moment_bytes_per_element(MomentFormat format) {
  constexpr double kScaleBytes = 4;
  double scale = format == MomentFormat::kBlockwise8 ? kScaleBytes / kMomentScaleElements : 0;
  return static_cast<double>(moment_value_bytes(format)) + scale;
}

/// Scales of one moment of a block of `element_count`, whose parameters begin at `parts`: each has
/// scales of its own, so that parameters are updated apart. No parts: the block is one. Pure.
int64_t moment_scale_count(std::span<const int64_t> parts, int64_t element_count);
/// The scale of element `offset`, which must be a multiple of kMomentScaleElements behind the
/// beginning of its part.
int64_t moment_scale_index(std::span<const int64_t> parts, int64_t offset);

/// Elements of one moment as they are kept. Does not own.
struct MomentView {
  std::span<std::byte> values;
  std::span<float> scales;  ///< of kBlockwise8
};

/// `view`'s elements as fp32, as many as `out` has.
void decode_moment(Moment moment, MomentFormat format, const MomentView& view,
                   std::span<float> out);

}  // namespace stagecoach
