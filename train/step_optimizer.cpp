#include "train/step_optimizer.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "train/optimizer.h"

namespace stagecoach {

namespace {

/// Where a cut of a block at `element` falls in a parameter: moments that share a scale stay
/// together.
int64_t cut_in(const ParameterInfo& parameter, int64_t element) {
  int64_t inside = element - parameter.offset, count = parameter.shape.element_count();
  if (inside >= count) return parameter.offset + count;
  return parameter.offset +
         std::max<int64_t>(0, inside) / kMomentScaleElements * kMomentScaleElements;
}

}  // namespace

double StepOptimizer::sum_of_squares(int block, TaskPool& pool) {
  return gradient_sum_of_squares(*setup_.state, block, pool);
}

Result<StepVerdict> StepOptimizer::judge(double sum_of_squares) {
  GradientVerdict gradients = judge_gradients(sum_of_squares, setup_.loss_scale, setup_.clip_norm);
  StepVerdict verdict;
  verdict.skip = !gradients.is_finite && setup_.loss_scale > kLeastLossScale;
  verdict.gradient_scale = gradients.gradient_scale;
  if (!gradients.is_finite && !verdict.skip) {
    return data_loss(fmt::format("the gradient norm is {}", gradients.norm));
  }
  if (setup_.loss_scales != nullptr) {
    // The optimizer counts the updates that it makes.
    setup_.numbers.step -= setup_.loss_scales->latest.skipped_steps;
    setup_.loss_scales->note(setup_.step, gradients.is_finite);
  }
  return verdict;
}

/// By whoever updates the block.
Result<int64_t> StepOptimizer::update_elements(int block, int64_t first, int64_t count,
                                               const UpdateNumbers& numbers, TaskPool& pool) {
  int device = updating_device(block);
  if (device < 0) return update_parameters(*setup_.state, block, first, count, numbers, pool);
  return setup_.device_updaters[static_cast<size_t>(device)]->update(*setup_.state, block, first,
                                                                     count, numbers);
}

Status StepOptimizer::update(int block, int64_t first, int64_t count, const StepVerdict& verdict,
                             TaskPool& pool) {
  const ParameterBlock& info = setup_.network->blocks[static_cast<size_t>(block)];
  for (size_t index = 0; index < info.parameters.size(); ++index) {
    const ParameterInfo& parameter = info.parameters[index];
    int64_t begin = cut_in(parameter, first), end = cut_in(parameter, first + count);
    if (begin >= end) continue;
    const ParameterGroup& group = setup_.groups[static_cast<size_t>(block)][index];
    UpdateNumbers numbers = setup_.numbers;
    numbers.learning_rate = static_cast<float>(setup_.learning_rate * group.learning_rate_scale);
    numbers.weight_decay = static_cast<float>(group.weight_decay);
    numbers.gradient_scale = static_cast<float>(verdict.gradient_scale);
    STAGECOACH_ASSIGN_OR_RETURN(int64_t refused,
                                update_elements(block, begin, end - begin, numbers, pool));
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
  return stagecoach::update_bytes(*setup_.state, block, setup_.numbers.rule);
}

}  // namespace stagecoach
