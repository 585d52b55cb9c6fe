#include "train/sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace stagecoach {

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     double uniform) {
  std::vector<int32_t> order;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (std::isfinite(logits[id])) order.push_back(static_cast<int32_t>(id));
  }
  if (order.empty()) return -1;
  std::stable_sort(order.begin(), order.end(), [&](int32_t left, int32_t right) {
    return logits[static_cast<size_t>(left)] > logits[static_cast<size_t>(right)];
  });
  if (options.temperature <= 0.0) return order.front();

  double largest = logits[static_cast<size_t>(order.front())];
  std::vector<double> weights;
  double total = 0.0;
  for (int32_t id : order) {
    double weight = std::exp((logits[static_cast<size_t>(id)] - largest) / options.temperature);
    weights.push_back(weight);
    total += weight;
  }
  size_t kept = 0;
  double mass = 0.0;
  while (kept < weights.size() && (kept == 0 || mass < options.top_p * total)) {
    mass += weights[kept++];
  }
  double target = uniform * mass;
  double cumulative = 0.0;
  for (size_t i = 0; i < kept; ++i) {
    cumulative += weights[i];
    if (target < cumulative) return order[i];
  }
  return order[kept - 1];  // rounding left the target just behind the last
}

}  // namespace stagecoach
