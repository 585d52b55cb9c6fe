#pragma once

#include <cstdint>
#include <string_view>

namespace stagecoach {

/// Bytes at the beginning of a file that `wide_encoding` looks at.
inline constexpr int64_t kEncodingProbeBytes = 4096;

/// What UTF-8 may begin with.
inline constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";

/// Name of a 16-bit encoding that a text seems to have, by its beginning; empty when it reads as
/// bytes.
std::string_view wide_encoding(std::string_view text);

/// Place of the first byte that is not UTF-8 (overlong forms and surrogates are not); -1: none.
int64_t first_invalid_utf8(std::string_view text);

}  // namespace stagecoach
