#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/multiversion.h"
#include "hal/op_call.h"

namespace stagecoach {

namespace {

/// Elements one task works on. Fixed, so that neither results nor vector tails depend on threads.
constexpr int64_t kTileElements = 64 * 1024;

/// As the device's update: the same factors, so that either gives the same bits.
AdamWFactors factors_of(const AdamWStep& step) {
  OpCall call;
  call.kind = OpKind::kAdamW;
  call.adamw = {step.learning_rate, step.beta1, step.beta2, step.weight_decay, step.step};
  call.scale = step.gradient_scale;
  call.epsilon = step.epsilon;
  return adamw_factors(call);
}

STAGECOACH_MULTIVERSION
void update_tile(float* __restrict parameters, float* __restrict first_moment,
                 float* __restrict second_moment, const float* __restrict gradients, int64_t count,
                 const AdamWFactors& given) {
  const AdamWFactors factors = given;  // a copy: the stores below cannot change it
  for (int64_t i = 0; i < count; ++i) {
    float gradient = gradients[i] * factors.gradient_scale;
    float first = factors.beta1 * first_moment[i] + factors.one_minus_beta1 * gradient;
    float second = factors.beta2 * second_moment[i] + factors.one_minus_beta2 * gradient * gradient;
    first_moment[i] = first;
    second_moment[i] = second;
    float scale = std::sqrt(second) * factors.second_correction + factors.epsilon;
    parameters[i] = parameters[i] * factors.keep - factors.step_size * first / scale;
  }
}

double sum_piece(const float* values, int64_t count) {
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i) sum += double{values[i]} * double{values[i]};
  return sum;
}

int64_t tile_count(int64_t count) {
  return (count + kTileElements - 1) / kTileElements;
}

}  // namespace

void adamw_update(float* parameters, float* first_moment, float* second_moment,
                  const float* gradients, int64_t count, const AdamWStep& step, TaskPool& pool) {
  AdamWFactors factors = factors_of(step);
  pool.parallel_for(tile_count(count), [&](int64_t tile) {
    int64_t first = tile * kTileElements;
    update_tile(parameters + first, first_moment + first, second_moment + first, gradients + first,
                std::min(kTileElements, count - first), factors);
  });
}

double sum_of_squares(const float* values, int64_t count, TaskPool& pool) {
  std::vector<double> pieces(static_cast<size_t>(tile_count(count)));
  pool.parallel_for(tile_count(count), [&](int64_t tile) {
    int64_t first = tile * kTileElements;
    pieces[static_cast<size_t>(tile)] =
        sum_piece(values + first, std::min(kTileElements, count - first));
  });
  double sum = 0.0;
  for (double piece : pieces) sum += piece;
  return sum;
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
