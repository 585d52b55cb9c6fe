#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "core/label.h"
#include "core/random.h"
#include "hal/tensor.h"

namespace stagecoach {

/// Every operation of the Ops table.
enum class OpKind : uint8_t {
  kEmbeddingForward,
  kEmbeddingBackward,
  kLayerNormForward,
  kLayerNormBackwardInput,
  kLayerNormBackwardWeight,
  kMatmul,
  kColumnSum,
  kGeluForward,
  kGeluBackward,
  kAttentionForward,
  kAttentionBackward,
  kAttentionSinkBackward,
  kAdd,
  kMultiply,
  kDropout,
  kLinearCrossEntropyForward,
  kLinearCrossEntropyBackwardInput,
  kLinearCrossEntropyBackwardWeight,
  kSquaredErrorForward,
  kSquaredErrorBackward,
  kAccumulate,
  kConvert,
  kSumOfSquares,
  kChecksum,
  kRmsNormForward,
  kRmsNormBackwardInput,
  kRmsNormBackwardWeight,
  kRotary,
  kQkNormForward,
  kQkNormBackwardInput,
  kQkNormBackwardWeight,
  kGatedSiluForward,
  kGatedSiluBackward,
  kAdamW,
  kFiniteCheck,
  kJoinMaster,
  kSplitMaster,
  kRouteForward,
  kRouteBackward,
  kBalanceForward,
  kBalanceBackward,
  kGroupRows,
  kGatherRows,
  kCombineRows,
  kCombineBackward,
  kGroupedMatmul,
  kGroupedMatmulWeight,
  kGroupedColumnSum,
};
inline constexpr int kOpKindCount = static_cast<int>(OpKind::kGroupedColumnSum) + 1;

/// "matmul", "attention_forward", …: the verb in messages, traces and fault plans.
std::string_view op_kind_name(OpKind kind);

/// Numbers of one AdamW update besides epsilon and gradient scale.
struct AdamWNumbers {
  float learning_rate = 0.0f;
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float weight_decay = 0.0f;
  int64_t step = 1;  ///< from 1, for bias correction
};

/// Numbers of a gated activation: (clamp(up) + up_offset) * g * sigmoid(alpha * g), where g is the
/// gate cut off above `limit` and up is clamped to ± `limit`. As they stand: silu(gate) * up.
struct GatedNumbers {
  float alpha = 1.0f;
  float limit = std::numeric_limits<float>::infinity();
  float up_offset = 0.0f;
  bool is_interleaved = false;  ///< one tensor holds a row's gates and ups in turn, gate first
};

/// The loss of a cross-entropy row: (1 - label_smoothing) * -log p(label) + label_smoothing * mean
/// over V of -log p + z_loss * lse^2, where p is the softmax of its logits and lse the log of its
/// denominator. As they stand: plain cross-entropy, bit for bit.
struct LossTerms {
  float z_loss = 0.0f;           ///< >= 0
  float label_smoothing = 0.0f;  ///< [0, 1)

  /// What is taken from a row's softmax, at the label and elsewhere, for the logits' gradient.
  float other_share(int64_t vocabulary) const {
    return label_smoothing / static_cast<float>(vocabulary);
  }
  float label_share(int64_t vocabulary) const {
    return 1.0f - label_smoothing + other_share(vocabulary);
  }
};

/// What of an AdamW update is equal for all elements.
struct AdamWFactors {
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float gradient_scale;
  float epsilon;
  float keep;               ///< 1 - learning rate * weight decay
  float step_size;          ///< learning rate / bias correction of the first moment
  float second_correction;  ///< 1 / sqrt of the bias correction of the second moment
};

/// One operation as plain data: what runs, on which tensors, with which numbers. Decorators, cost
/// models, recorders and checkers read this instead of a method per op. Operand order of each kind
/// is stated at its method in ops.h; absent optional operands are none.
struct OpCall {
  static constexpr int kMaxOutputs = 3;
  static constexpr int kMaxInputs = 7;

  OpKind kind = OpKind::kAdd;
  Label label;
  std::array<TensorView, kMaxOutputs> outputs;
  std::array<TensorView, kMaxInputs> inputs;
  bool accumulate = false;   ///< outputs are added to instead of overwritten
  bool transpose_a = false;  ///< matmul
  bool transpose_b = false;  ///< matmul, grouped_matmul
  bool inverse = false;      ///< rotary: rotates back
  bool over_chosen = false;  ///< routing: the softmax is that of the chosen logits alone
  float scale = 1.0f;        ///< attention score scale; loss gradient scale; adamw's gradient scale
  float epsilon = 0.0f;      ///< norms, adamw
  float drop_probability = 0.0f;
  RandomKey key;         ///< for dropout
  int64_t sequence = 0;  ///< tokens of one sequence; rows are whole sequences
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t window = 0;  ///< attention: keys a query sees, itself the last; 0: all up to itself
  GatedNumbers gated;
  LossTerms loss_terms;
  AdamWNumbers adamw;
};

/// Arithmetic of a call in FLOP (a multiply-add is two): the main terms, matmuls and attention
/// exactly, the rest by elements. What pacing, simulation and reports use. Pure.
double op_flop(const OpCall& call);

/// The factors of an adamw call. Pure.
AdamWFactors adamw_factors(const OpCall& call);

}  // namespace stagecoach
