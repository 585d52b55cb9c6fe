#pragma once

#include <cstdint>
#include <span>

#include "core/dtype.h"
#include "core/task_pool.h"

namespace stagecoach {

/// Gradients of equal elements: contributions that are added up in this order in fp32.
struct GradientSources {
  DType dtype = DType::kF32;             ///< fp32, bf16 or fp16
  std::span<const void* const> sources;  ///< at least one
};

/// Sum of squares of `count` accumulated gradients in the order of hal/square_sum.h. The same bits
/// on any SIMD target and any number of threads, and as Ops::sum_of_squares of the sums. It is
/// finite exactly when all gradients are.
/// Thread rule: any thread.
double sum_of_squares(const GradientSources& gradients, int64_t count, TaskPool& pool);

}  // namespace stagecoach
