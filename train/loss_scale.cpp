#include "train/loss_scale.h"

#include <algorithm>
#include <cmath>

namespace stagecoach {

LossScale next_loss_scale(const LossScale& scale, bool gradients_are_finite) {
  LossScale next = scale;
  if (!gradients_are_finite) {
    next.value = std::max(scale.value * kLossScaleBackoff, kLeastLossScale);
    next.good_steps = 0;
    ++next.skipped_steps;
    return next;
  }
  if (++next.good_steps < kLossScaleGrowthInterval) return next;
  next.good_steps = 0;
  double grown = scale.value * kLossScaleGrowth;
  if (std::isfinite(static_cast<float>(grown))) next.value = grown;
  return next;
}

GradientVerdict judge_gradients(double sum_of_squares, double loss_scale, double clip_norm) {
  GradientVerdict verdict;
  verdict.is_finite = std::isfinite(sum_of_squares);
  verdict.norm = std::sqrt(sum_of_squares) / loss_scale;
  if (!verdict.is_finite) return verdict;
  double factor = clip_norm > 0 && verdict.norm > clip_norm ? clip_norm / verdict.norm : 1;
  verdict.gradient_scale = static_cast<float>(factor / loss_scale);
  return verdict;
}

}  // namespace stagecoach
