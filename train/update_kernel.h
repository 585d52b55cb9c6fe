#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/task_pool.h"
#include "memory/moments.h"
#include "train/gradient_sources.h"

namespace stagecoach {

/// How parameters follow their gradients.
enum class UpdateRule : uint8_t {
  kAdamW,     ///< Loshchilov & Hutter, 2019: decay apart from the gradient
  kAdam,      ///< Kingma & Ba, 2015: decay is added to the gradient
  kSgd,       ///< with momentum `beta1`, not dampened: moment = beta1 * moment + gradient
  kPlainSgd,  ///< without momentum: no moment
  kLion,      ///< Chen et al., 2023: the sign of a mean of moment and gradient; one moment
};

/// Moments that a rule keeps of every parameter.
constexpr int moment_count(UpdateRule rule) {
  if (rule == UpdateRule::kPlainSgd) return 0;
  return rule == UpdateRule::kSgd || rule == UpdateRule::kLion ? 1 : 2;
}

/// Numbers of one update of one parameter group.
struct UpdateNumbers {
  UpdateRule rule = UpdateRule::kAdamW;
  float learning_rate = 0;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0;
  float gradient_scale = 1;  ///< every gradient is multiplied by it first: clipping, loss scale
  int64_t step = 1;          ///< from 1, for bias correction
};

/// One moment of every element of a piece.
struct MomentStore {
  void* values = nullptr;
  float* scales = nullptr;  ///< of kBlockwise8: one per kMomentScaleElements elements, begun or not
};

/// A contiguous piece of a block: what an update reads and writes. Nothing overlaps but what is
/// said to be allowed to be equal. Does not own.
struct UpdatePiece {
  int64_t element_count = 0;
  GradientSources gradients;

  /// Parameters in fp32: read from `parameters`, written to `new_parameters` (may be the same).
  const float* parameters = nullptr;
  float* new_parameters = nullptr;
  /// A copy of those for devices, rounded to nearest, ties to even; or none.
  void* published = nullptr;
  DType published_dtype = DType::kBF16;

  /// Or a split master (memory/split_master.h): high halves read from `high`, written to `new_high`
  /// (may be the same; another one lets readers keep the old version), remainders in place.
  const BFloat16* high = nullptr;
  BFloat16* new_high = nullptr;
  int16_t* remainder = nullptr;

  MomentFormat moment_format = MomentFormat::kFloat32;
  MomentStore first_moment;   ///< of rules that keep one
  MomentStore second_moment;  ///< of rules that keep two
};

/// Updates every element of `piece` once, in one pass over its memory. Returns how many elements
/// were refused because their new parameter or a moment would be infinite or NaN, or past what
/// bf16 holds where it is kept as bf16: nothing of such an element changes (a moment of one byte is
/// rounded again with its neighbours). With clipping or loss scaling the verdict is known before,
/// from `sum_of_squares`; without, a count above zero means that training must stop.
///
/// Elements are independent and every operation is rounded to fp32 by itself, so the bits depend on
/// nothing else: not on the SIMD target, the threads, or how a block is cut into pieces (for
/// kBlockwise8: at multiples of kMomentScaleElements). Denormal operands and results are zero.
/// AdamW gives the bits of hal/adamw_element.h. Thread rule: disjoint pieces at once.
int64_t update_piece(const UpdatePiece& piece, const UpdateNumbers& numbers, TaskPool& pool);

/// Host memory that update touches, in bytes read plus bytes written an element.
double update_bytes_per_element(const UpdatePiece& piece, UpdateRule rule);

/// Name of the SIMD target that runs here, for logs: "AVX3".
std::string_view simd_target_name();
/// Highway's numbers of the targets that are built in and that this processor has; for tests.
std::vector<int64_t> simd_targets();

}  // namespace stagecoach
