#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "train/update_kernel.h"

namespace stagecoach {

int64_t adamw_update(float* parameters, float* first_moment, float* second_moment,
                     const float* gradients, int64_t count, const AdamWStep& step, TaskPool& pool) {
  const void* source = gradients;
  UpdatePiece piece;
  piece.element_count = count;
  piece.gradients = {DType::kF32, {&source, 1}};
  piece.parameters = parameters;
  piece.new_parameters = parameters;
  piece.first_moment.values = first_moment;
  piece.second_moment.values = second_moment;
  UpdateNumbers numbers{UpdateRule::kAdamW, step.learning_rate, step.beta1,          step.beta2,
                        step.epsilon,       step.weight_decay,  step.gradient_scale, step.step};
  return update_piece(piece, numbers, pool);
}

double sum_of_squares(const float* values, int64_t count, TaskPool& pool) {
  const void* source = values;
  return sum_of_squares(GradientSources{DType::kF32, {&source, 1}}, count, pool);
}

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
