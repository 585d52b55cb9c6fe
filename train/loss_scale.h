#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace stagecoach {

/// Dynamic loss scaling of fp16 training, as torch.amp.GradScaler does it: gradients are computed
/// of the loss times a factor, so that small ones are no zeros in fp16, and divided by it in the
/// update. A step whose gradients are not finite is skipped and halves the factor; many good steps
/// in a row double it.
inline constexpr double kInitialLossScale = 65536;
inline constexpr double kLeastLossScale = 1;
inline constexpr double kLossScaleGrowth = 2;
inline constexpr double kLossScaleBackoff = 0.5;
inline constexpr int64_t kLossScaleGrowthInterval = 2000;  ///< good steps

/// Where it stands: a checkpoint keeps all of it. Plain data.
struct LossScale {
  double value = kInitialLossScale;
  int64_t good_steps = 0;     ///< since the factor changed
  int64_t skipped_steps = 0;  ///< since the run began
};

/// After a step whose gradients were finite, or not. The factor stays from kLeastLossScale to what
/// fp32 holds. Pure.
LossScale next_loss_scale(const LossScale& scale, bool gradients_are_finite);

/// What the sum of squares of all gradients says of a step. Pure data.
struct GradientVerdict {
  bool is_finite = false;    ///< all gradients are
  double norm = 0;           ///< of the gradients without the loss scale, before clipping
  float gradient_scale = 1;  ///< what the update multiplies them with: clipping, loss scale
};

/// `loss_scale` is 1 where there is none, `clip_norm` 0. Pure.
GradientVerdict judge_gradients(double sum_of_squares, double loss_scale, double clip_norm);

/// The state that passes of overlapping steps look up. Not thread-safe.
class LossScales {
 public:
  LossScale latest;

  /// After step `step`, which follows the one noted before.
  void note(int64_t step, bool gradients_are_finite) {
    latest = next_loss_scale(latest, gradients_are_finite);
    after_[static_cast<size_t>(step) % after_.size()] = latest;
  }
  /// The factor that step `step` begins with; the verdict of the one before it has been noted, and
  /// at most one more.
  double value_before(int64_t step) const {
    return step > 0 ? after_[static_cast<size_t>(step - 1) % after_.size()].value : previous_value_;
  }
  /// Begins with `scale`, at step 1; `previous_value` is the factor of the step before that.
  void restart(const LossScale& scale, double previous_value) {
    latest = after_[0] = scale;
    previous_value_ = previous_value;
  }

 private:
  double previous_value_ = kInitialLossScale;
  std::array<LossScale, 4> after_;
};

}  // namespace stagecoach
