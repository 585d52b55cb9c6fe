#include "core/printable.h"

#include <algorithm>
#include <fmt/format.h>

namespace stagecoach {

namespace {

/// Bytes of the character that `text` begins with; 0 when that is no UTF-8.
size_t character_size(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  size_t size = 0;
  if (byte(0) < 0x80) return 1;
  if (byte(0) >= 0xc2 && byte(0) < 0xe0) size = 2;
  if (byte(0) >= 0xe0 && byte(0) < 0xf0) size = 3;
  if (byte(0) >= 0xf0 && byte(0) < 0xf5) size = 4;
  if (size == 0 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  // Longer than it need be: another spelling of a shorter one.
  bool is_overlong = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xf0 && byte(1) < 0x90);
  return is_overlong ? 0 : size;
}

bool is_control(std::string_view character) {
  auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7f;
  // U+0080 to U+009F, which terminals take for two characters that begin with an escape.
  return first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    size_t size = character_size(text);
    std::string_view character = text.substr(0, std::max<size_t>(size, 1));
    if (size > 0 && !is_control(character)) {
      out += character;
    } else {
      for (char byte : character) {
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
      }
    }
    text.remove_prefix(character.size());
  }
  return out;
}

}  // namespace stagecoach
