#include "model/mxfp4.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

namespace stagecoach {

namespace {

constexpr float kMagnitudes[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
constexpr int kScaleBias = 127;

float decode(unsigned bits, int exponent) {
  float magnitude = std::ldexp(kMagnitudes[bits & 7u], exponent);
  return (bits & 8u) != 0 ? -magnitude : magnitude;
}

}  // namespace

Status decode_mxfp4_columns(const Mxfp4Matrix& matrix, int64_t first_column, std::span<float> out) {
  int64_t end = first_column + static_cast<int64_t>(out.size()) / matrix.rows;
  for (int64_t row = 0; row < matrix.rows; ++row) {
    int64_t column = first_column;
    while (column < end) {
      int64_t group = column / kMxfp4GroupColumns;
      int64_t group_end = std::min(end, (group + 1) * kMxfp4GroupColumns);
      auto index = static_cast<size_t>(row * matrix.groups + group);
      unsigned scale = matrix.scales[index];
      float values[16];
      for (unsigned bits = 0; bits < 16; ++bits) {
        values[bits] = decode(bits, static_cast<int>(scale) - kScaleBias);
      }
      const uint8_t* block = matrix.blocks.data() + index * kMxfp4GroupBytes;
      for (; column < group_end; ++column) {
        int64_t place = column % kMxfp4GroupColumns;
        unsigned byte = block[place / 2];
        float value = values[place % 2 == 0 ? byte & 15u : byte >> 4];
        // The largest power of two but one makes the large magnitudes infinite; 255 is no number.
        if (scale == 255 || !std::isfinite(value)) {
          return data_loss(
              fmt::format("row {}, group {}: a scale of {} makes numbers that are not "
                          "finite",
                          row, group, scale));
        }
        out[static_cast<size_t>((column - first_column) * matrix.rows + row)] = value;
      }
    }
  }
  return Status::ok();
}

}  // namespace stagecoach
