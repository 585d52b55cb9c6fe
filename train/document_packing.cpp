#include "train/document_packing.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "core/check.h"

namespace stagecoach {

std::vector<int64_t> pack_best_fit(std::span<const int64_t> lengths, int64_t capacity) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
  std::vector<int64_t> sequences(lengths.size());
  std::set<std::pair<int64_t, int64_t>> open;  // room and number of sequences that are not full
  int64_t count = 0;
  for (size_t piece : order) {
    int64_t length = lengths[piece];
    STAGECOACH_CHECK(length > 0 && length <= capacity);
    auto best = open.lower_bound({length, 0});
    std::pair<int64_t, int64_t> chosen{capacity, count};
    if (best == open.end()) {
      ++count;
    } else {
      chosen = *best;
      open.erase(best);
    }
    sequences[piece] = chosen.second;
    if (chosen.first > length) open.emplace(chosen.first - length, chosen.second);
  }
  std::vector<int64_t> numbers(static_cast<size_t>(count), -1);
  int64_t next = 0;
  for (int64_t& sequence : sequences) {
    int64_t& number = numbers[static_cast<size_t>(sequence)];
    if (number < 0) number = next++;
    sequence = number;
  }
  return sequences;
}

}  // namespace stagecoach
