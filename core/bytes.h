#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/status.h"

namespace stagecoach {

/// A size in bytes. Signed, so that a difference that went wrong shows as negative.
using ByteCount = int64_t;

inline constexpr ByteCount kKiB = 1024;
inline constexpr ByteCount kMiB = 1024 * kKiB;
inline constexpr ByteCount kGiB = 1024 * kMiB;

/// Smallest multiple of `alignment` (a power of two) that is >= `size`.
constexpr ByteCount align_up(ByteCount size, ByteCount alignment) {
  return (size + alignment - 1) & ~(alignment - 1);
}

/// Product of two non-negative counts, or an error naming both when it does not fit 63 bits.
Result<ByteCount> checked_multiply(int64_t left, int64_t right);

/// "64M" -> 67108864. Suffixes K, M, G, T are binary; an optional "iB" or "B" may follow. Fractions
/// such as "1.5G" are allowed. The error names the text.
Result<ByteCount> parse_bytes(std::string_view text);

/// "1.50 MiB": for people; three significant digits or more.
std::string format_bytes(ByteCount size);

/// "20us" -> 20000. Suffixes ns, us, ms, s; a bare number is seconds.
Result<int64_t> parse_duration_ns(std::string_view text);

/// "20G" -> 2.0e10 (decimal suffixes K, M, G, T: rates of arithmetic, not bytes).
Result<double> parse_rate(std::string_view text);

}  // namespace stagecoach
