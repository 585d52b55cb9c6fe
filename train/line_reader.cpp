#include "train/line_reader.h"

#include <algorithm>
#include <fmt/format.h>

#include "train/text_encoding.h"

namespace stagecoach {

/// Reads one piece more behind what is left.
Status LineReader::fill() {
  buffer_.erase(0, begin_);
  searched_ -= begin_;
  begin_ = 0;
  size_t held = buffer_.size();
  if (static_cast<ByteCount>(held) > kMaxLineBytes) {
    return invalid_argument(fmt::format("'{}' line {} is longer than {}: cut it into records",
                                        text_.name(), number_ + 1, format_bytes(kMaxLineBytes)));
  }
  ByteCount count = std::min(kPieceBytes, text_.size() - offset_);
  buffer_.resize(held + static_cast<size_t>(count));
  STAGECOACH_RETURN_IF_ERROR(text_.read(offset_, buffer_.data() + held, count));
  bool is_first = offset_ == 0;
  offset_ += count;
  if (is_first && buffer_.starts_with(kUtf8Mark)) begin_ = searched_ = kUtf8Mark.size();
  return Status::ok();
}

Result<bool> LineReader::next() {
  size_t end = buffer_.find('\n', searched_);
  while (end == std::string::npos && offset_ < text_.size()) {
    searched_ = buffer_.size();
    STAGECOACH_RETURN_IF_ERROR(fill());
    end = buffer_.find('\n', searched_);
  }
  if (end == std::string::npos && begin_ == buffer_.size()) return false;
  size_t last = std::min(end, buffer_.size());
  line_ = std::string_view(buffer_).substr(begin_, last - begin_);
  if (line_.ends_with('\r')) line_.remove_suffix(1);
  begin_ = searched_ = std::min(last + 1, buffer_.size());
  ++number_;
  return true;
}

}  // namespace stagecoach
