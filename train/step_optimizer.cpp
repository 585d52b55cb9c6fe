#include "train/step_optimizer.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "train/optimizer.h"

namespace stagecoach {

double StepOptimizer::sum_of_squares(int block, TaskPool& pool) {
  return gradient_sum_of_squares(*setup_.state, block, pool);
}

Result<StepVerdict> StepOptimizer::judge(double sum_of_squares) {
  double norm = std::sqrt(sum_of_squares);
  if (!std::isfinite(norm)) return data_loss(fmt::format("the gradient norm is {}", norm));
  StepVerdict verdict;
  if (setup_.clip_norm > 0 && norm > setup_.clip_norm) {
    verdict.gradient_scale = setup_.clip_norm / norm;
  }
  return verdict;
}

Status StepOptimizer::update(int block, int64_t first, int64_t count, const StepVerdict& verdict,
                             TaskPool& pool) {
  const ParameterBlock& info = setup_.network->blocks[static_cast<size_t>(block)];
  for (size_t index = 0; index < info.parameters.size(); ++index) {
    const ParameterInfo& parameter = info.parameters[index];
    int64_t begin = std::max(first, parameter.offset);
    int64_t end = std::min(first + count, parameter.offset + parameter.shape.element_count());
    if (begin >= end) continue;
    const ParameterGroup& group = setup_.groups[static_cast<size_t>(block)][index];
    UpdateNumbers numbers = setup_.numbers;
    numbers.learning_rate = static_cast<float>(setup_.learning_rate * group.learning_rate_scale);
    numbers.weight_decay = static_cast<float>(group.weight_decay);
    numbers.gradient_scale = static_cast<float>(verdict.gradient_scale);
    int64_t refused = update_parameters(*setup_.state, block, begin, end - begin, numbers, pool);
    if (refused == 0) continue;
    return data_loss(
        fmt::format("update {}: {} of {} elements of '{}' or their moments would not be finite",
                    numbers.step, refused, end - begin, parameter.name));
  }
  return Status::ok();
}

ByteCount StepOptimizer::sum_bytes(int block) const {
  return gradient_bytes(*setup_.state, block);
}

ByteCount StepOptimizer::update_bytes(int block) const {
  return stagecoach::update_bytes(*setup_.state, block, UpdateRule::kAdamW);
}

}  // namespace stagecoach
