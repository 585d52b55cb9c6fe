#pragma once

#include <cstdint>
#include <span>

#include "core/bytes.h"
#include "core/status.h"

namespace stagecoach {

/// Matrices of 4-bit numbers as GPT-OSS is published (OCP Microscaling formats, MXFP4): each row in
/// groups of 32 numbers that share a power of two. A group is 16 bytes, two numbers a byte, the
/// first in the low half: a sign bit, then 0, 0.5, 1, 1.5, 2, 3, 4 or 6. Its scale is a byte, the
/// power's exponent plus 127.
inline constexpr int64_t kMxfp4GroupColumns = 32;
inline constexpr ByteCount kMxfp4GroupBytes = 16;

/// A packed matrix of `rows` rows, in memory.
struct Mxfp4Matrix {
  int64_t rows = 0;
  int64_t groups = 0;               ///< of a row
  std::span<const uint8_t> blocks;  ///< [rows, groups, 16]
  std::span<const uint8_t> scales;  ///< [rows, groups]

  int64_t columns() const { return groups * kMxfp4GroupColumns; }
};

/// Rows of the transposed matrix, exactly: out[i * rows + r] is the number in row r and column
/// `first_column` + i, for as many columns as `out` has. Errors: data loss when one is not finite,
/// which scales of 254 and 255 can make. Pure.
Status decode_mxfp4_columns(const Mxfp4Matrix& matrix, int64_t first_column, std::span<float> out);

}  // namespace stagecoach
