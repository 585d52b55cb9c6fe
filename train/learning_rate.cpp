#include "train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace stagecoach {

double learning_rate_at(int64_t iteration, int64_t total, double peak, int64_t warmup,
                        const std::string& decay, double floor_fraction) {
  if (iteration < warmup) {
    return peak * static_cast<double>(iteration + 1) / static_cast<double>(warmup);
  }
  if (decay == "constant") return peak;
  double span = static_cast<double>(std::max<int64_t>(total - warmup, 1));
  double progress = std::min(1.0, static_cast<double>(iteration - warmup) / span);
  double shape =
      decay == "linear" ? 1.0 - progress : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return peak * (floor_fraction + (1.0 - floor_fraction) * shape);
}

}  // namespace stagecoach
