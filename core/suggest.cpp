#include "core/suggest.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace stagecoach {

namespace {

/// Names are near when at most one letter in this many is wrong (and always when one is).
constexpr size_t kLettersPerMistake = 3;

std::string normalized(std::string_view name) {
  std::string text(name);
  for (char& letter : text) {
    letter =
        letter == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return text;
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `left` into `right`.
size_t edit_distance(const std::string& left, const std::string& right) {
  size_t width = right.size() + 1;
  std::vector<size_t> two_back(width), last(width), current(width);
  for (size_t j = 0; j < width; ++j) current[j] = j;
  for (size_t i = 1; i <= left.size(); ++i) {
    two_back.swap(last);
    last.swap(current);
    current[0] = i;
    for (size_t j = 1; j < width; ++j) {
      size_t replaced = last[j - 1] + (left[i - 1] == right[j - 1] ? 0 : 1);
      current[j] = std::min({last[j] + 1, current[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1]) {
        current[j] = std::min(current[j], two_back[j - 2] + 1);
      }
    }
  }
  return current.back();
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> candidates) {
  std::string wanted = normalized(name);
  const std::string* best = nullptr;
  size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    std::string text = normalized(candidate);
    size_t distance = edit_distance(wanted, text);
    size_t allowed = std::max<size_t>(1, std::max(wanted.size(), text.size()) / kLettersPerMistake);
    // A distance of the whole name would offer any short name for any other.
    if (distance > allowed || distance >= text.size()) continue;
    if (best == nullptr || distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? std::string() : *best;
}

}  // namespace stagecoach
