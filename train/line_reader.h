#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/byte_source.h"

namespace stagecoach {

/// Reads a text line by line with memory for the longest line. Lines end in LF or CRLF, the last
/// may end in nothing; a byte-order mark before the first is dropped.
/// Thread rule: one thread at a time.
class LineReader {
 public:
  explicit LineReader(const ByteSource& text) : text_(text) {}

  /// Moves to the next line; false behind the last. Errors: those of the source; invalid argument
  /// for a line of more than kMaxLineBytes.
  Result<bool> next();
  /// Without its end; valid until `next`.
  std::string_view line() const { return line_; }
  /// From 1.
  int64_t number() const { return number_; }

  static constexpr ByteCount kMaxLineBytes = kGiB;

 private:
  Status fill();

  const ByteSource& text_;
  ByteCount offset_ = 0;  ///< of what has not been read into the buffer
  std::string buffer_;    ///< what has been read and not given out begins at `begin_`
  size_t begin_ = 0;
  size_t searched_ = 0;  ///< bytes of the buffer in which no line ends
  std::string_view line_;
  int64_t number_ = 0;
};

}  // namespace stagecoach
