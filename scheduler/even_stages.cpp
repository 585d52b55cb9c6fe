#include "scheduler/even_stages.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

namespace stagecoach {

Result<std::vector<int>> cut_evenly(const std::vector<LayerProfile>& layers,
                                    const std::vector<double>& speeds) {
  auto count = static_cast<int>(speeds.size());
  auto layer_count = static_cast<int>(layers.size());
  if (count < 1 || count > layer_count) {
    return invalid_argument(fmt::format("{} layers cannot be cut into {} stages; use 1 to {}",
                                        layer_count, count, layer_count));
  }
  std::vector<double> sums(1, 0);
  for (const LayerProfile& layer : layers) {
    sums.push_back(sums.back() + layer.forward_ns + layer.recompute_ns + layer.backward_ns);
  }
  // longest[k][n]: of the best cut of the first n layers into k + 1 stages; from[k][n]: where its
  // last stage begins.
  std::vector<std::vector<double>> longest(count);
  std::vector<std::vector<int>> from(count);
  for (int k = 0; k < count; ++k) {
    longest[k].assign(layer_count + 1, std::numeric_limits<double>::infinity());
    from[k].assign(layer_count + 1, 0);
    for (int n = k + 1; n <= layer_count; ++n) {
      if (k == 0) {
        longest[k][n] = sums[n] / speeds[k];
        continue;
      }
      for (int first = k; first < n; ++first) {
        double time = std::max(longest[k - 1][first], (sums[n] - sums[first]) / speeds[k]);
        if (time >= longest[k][n]) continue;
        longest[k][n] = time;
        from[k][n] = first;
      }
    }
  }
  std::vector<int> firsts(count);
  for (int k = count - 1, n = layer_count; k >= 0; --k) firsts[k] = n = from[k][n];
  return firsts;
}

}  // namespace stagecoach
