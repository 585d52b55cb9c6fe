#include "train/text_data.h"

#include <algorithm>
#include <fmt/format.h>
#include <string>

#include "train/interrupt.h"
#include "train/text_encoding.h"
#include "train/token_builder.h"

namespace stagecoach {

namespace {

/// Appends all but the CRs before LFs. `held_cr`: the piece before ended in one, which is still to
/// be judged.
void append_lines(std::string_view piece, bool& held_cr, TokenBuilder& builder) {
  while (!piece.empty()) {
    if (held_cr && piece.front() != '\n') builder.append("\r", true);
    held_cr = false;
    size_t end = piece.find('\r');
    builder.append(piece.substr(0, end), true);
    if (end == std::string_view::npos) return;
    held_cr = true;
    piece.remove_prefix(end + 1);
  }
}

}  // namespace

Result<TokenSource> read_text_tokens(const ByteSource& text, bool separate) {
  TokenBuilder builder;
  builder.reserve(text.size() + 1);
  builder.start_document();
  std::string piece;
  bool held_cr = false;
  for (ByteCount offset = 0; offset < text.size(); offset += kPieceBytes) {
    if (InterruptGuard::is_interrupted()) return cancelled("reading data was interrupted");
    piece.resize(static_cast<size_t>(std::min(kPieceBytes, text.size() - offset)));
    STAGECOACH_RETURN_IF_ERROR(
        text.read(offset, piece.data(), static_cast<ByteCount>(piece.size())));
    std::string_view rest = piece;
    if (offset == 0) {
      if (std::string_view encoding = wide_encoding(rest); !encoding.empty()) {
        return invalid_argument(
            fmt::format("'{}' looks like {}; byte-level data must be UTF-8 or plain bytes: convert "
                        "it, for example with iconv -f UTF-16 -t UTF-8",
                        text.name(), encoding));
      }
      if (rest.starts_with(kUtf8Mark)) rest.remove_prefix(kUtf8Mark.size());
    }
    append_lines(rest, held_cr, builder);
  }
  if (held_cr) builder.append("\r", true);
  if (builder.count() == 0) {
    return invalid_argument(
        fmt::format("'{}' is empty; give a file that holds text, or leave it out", text.name()));
  }
  if (separate) builder.append_separator(true);
  return builder.finish(text.name(), false);
}

}  // namespace stagecoach
