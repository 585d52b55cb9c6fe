#include "train/text_encoding.h"

#include <cstddef>

namespace stagecoach {

namespace {

constexpr std::string_view kUtf16LittleMark = "\xff\xfe";
constexpr std::string_view kUtf16BigMark = "\xfe\xff";
/// Least bytes that tell, and share of zeros on even or odd places, that make UTF-16 without a
/// mark.
constexpr size_t kLeastProbeBytes = 8;
constexpr double kUtf16ZeroShare = 0.4;

/// Bytes of the character that `text` begins with; 0 when it is none (Unicode 15, table 3-7).
size_t character_bytes(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = byte(0);
  if (first < 0x80) return 1;
  size_t size = first >= 0xc2 && first < 0xe0   ? 2
                : first >= 0xe0 && first < 0xf0 ? 3
                : first >= 0xf0 && first < 0xf5 ? 4
                                                : 0;
  if (size == 0 || text.size() < size) return 0;
  unsigned char least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < least || byte(1) > most) return 0;
  for (size_t i = 2; i < size; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  return size;
}

}  // namespace

std::string_view wide_encoding(std::string_view text) {
  if (text.starts_with(kUtf16LittleMark)) return "UTF-16 (little endian, by its byte-order mark)";
  if (text.starts_with(kUtf16BigMark)) return "UTF-16 (big endian, by its byte-order mark)";
  std::string_view probe = text.substr(0, kEncodingProbeBytes);
  size_t zeros[2] = {0, 0};
  for (size_t i = 0; i < probe.size(); ++i) zeros[i % 2] += probe[i] == '\0' ? 1 : 0;
  double half = static_cast<double>(probe.size()) / 2.0;
  bool even = static_cast<double>(zeros[0]) > kUtf16ZeroShare * half && zeros[1] == 0;
  bool odd = static_cast<double>(zeros[1]) > kUtf16ZeroShare * half && zeros[0] == 0;
  if (probe.size() >= kLeastProbeBytes && (even || odd))
    return "UTF-16 (every second byte is zero)";
  return "";
}

int64_t first_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    size_t size = character_bytes(text.substr(at));
    if (size == 0) return static_cast<int64_t>(at);
    at += size;
  }
  return -1;
}

}  // namespace stagecoach
