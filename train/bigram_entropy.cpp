#include "train/bigram_entropy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace stagecoach {

double bigram_entropy(std::vector<TokenPair> pairs) {
  if (pairs.empty()) return 0.0;
  std::sort(pairs.begin(), pairs.end());
  double sum = 0.0;
  for (size_t group = 0; group < pairs.size();) {
    size_t group_end = group;
    while (group_end < pairs.size() && pairs[group_end].first == pairs[group].first) ++group_end;
    double group_count = static_cast<double>(group_end - group);
    for (size_t i = group; i < group_end;) {
      size_t same_end = i;
      while (same_end < group_end && pairs[same_end] == pairs[i]) ++same_end;
      double count = static_cast<double>(same_end - i);
      sum -= count * std::log(count / group_count);
      i = same_end;
    }
    group = group_end;
  }
  return sum / static_cast<double>(pairs.size());
}

}  // namespace stagecoach
