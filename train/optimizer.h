#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"
#include "core/task_pool.h"

namespace stagecoach {

/// Parameters of one AdamW update of one parameter group.
struct AdamWStep {
  float learning_rate = 0;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0;    ///< decoupled: parameter -= learning_rate * weight_decay * parameter
  float gradient_scale = 1;  ///< every gradient is multiplied by it first: clipping
  int64_t step = 1;          ///< from 1, for bias correction
};

/// Applies one AdamW step in place to `count` fp32 elements. Returns how many were refused because
/// they would not be finite, as update_piece. Thread rule: disjoint ranges at once.
int64_t adamw_update(float* parameters, float* first_moment, float* second_moment,
                     const float* gradients, int64_t count, const AdamWStep& step, TaskPool& pool);

/// Sum of squares of fp32 elements, as that of gradient_sources.h.
double sum_of_squares(const float* values, int64_t count, TaskPool& pool);

/// Learning rate of iteration `iteration` (from 0): linear warm-up to `peak` over `warmup`
/// iterations, then "cosine" or "linear" decay to `floor_fraction` * peak at `total`, or
/// "constant".
double learning_rate_at(int64_t iteration, int64_t total, double peak, int64_t warmup,
                        const std::string& decay, double floor_fraction);

}  // namespace stagecoach
