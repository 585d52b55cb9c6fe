#include "hal/op_call.h"

#include <cmath>

namespace stagecoach {

namespace {

constexpr std::array<std::string_view, kOpKindCount> kNames = {
    "embedding_forward",
    "embedding_backward",
    "layer_norm_forward",
    "layer_norm_backward_input",
    "layer_norm_backward_weight",
    "matmul",
    "column_sum",
    "gelu_forward",
    "gelu_backward",
    "attention_forward",
    "attention_backward",
    "attention_sink_backward",
    "add",
    "multiply",
    "dropout",
    "linear_cross_entropy_forward",
    "linear_cross_entropy_backward_input",
    "linear_cross_entropy_backward_weight",
    "squared_error_forward",
    "squared_error_backward",
    "accumulate",
    "convert",
    "sum_of_squares",
    "checksum",
    "rms_norm_forward",
    "rms_norm_backward_input",
    "rms_norm_backward_weight",
    "rotary",
    "qk_norm_forward",
    "qk_norm_backward_input",
    "qk_norm_backward_weight",
    "gated_silu_forward",
    "gated_silu_backward",
    "adamw",
    "finite_check",
    "join_master",
    "split_master",
    "route_forward",
    "route_backward",
    "balance_forward",
    "balance_backward",
    "group_rows",
    "gather_rows",
    "combine_rows",
    "combine_backward",
    "grouped_matmul",
    "grouped_matmul_weight",
    "grouped_column_sum",
};

double dim(const TensorView& tensor, int axis) {
  return static_cast<double>(tensor.shape[axis]);
}

/// Scores and weighted values of the keys that queries see, one multiply-add each a head dimension.
/// Where documents end is not known here: they count as one.
double attention_forward_flop(const OpCall& call, double rows) {
  double sequence = static_cast<double>(call.sequence);
  bool has_window = call.window > 0 && call.window < call.sequence;
  double window = has_window ? static_cast<double>(call.window) : sequence;
  // All keys of the first `window` queries' half, then `window` for each of the others.
  double pairs = rows / sequence * (window * (window + 1.0) / 2.0 + (sequence - window) * window);
  double head_columns = static_cast<double>(call.heads) * static_cast<double>(call.head_dim);
  return 2.0 * 2.0 * pairs * head_columns;
}

/// Arithmetic of one element of the operations that have no product in them.
double flop_per_element(const OpCall& call) {
  switch (call.kind) {
    case OpKind::kLayerNormForward:
      return 8.0;
    case OpKind::kLayerNormBackwardInput:
      return 11.0;
    case OpKind::kLayerNormBackwardWeight:
      return 5.0;
    case OpKind::kGeluForward:
      return 12.0;
    case OpKind::kGeluBackward:
      return 20.0;
    case OpKind::kDropout:
      // Drawing the word dominates: ten rounds of Philox give four of them.
      return call.drop_probability > 0.0f ? 32.0 : 2.0;
    case OpKind::kRmsNormForward:
    case OpKind::kQkNormForward:
      return 4.0;
    case OpKind::kRmsNormBackwardInput:
    case OpKind::kQkNormBackwardInput:
      return 9.0;
    case OpKind::kAdamW:
      return 14.0;
    case OpKind::kRouteForward:
    case OpKind::kRouteBackward:
    case OpKind::kBalanceForward:
    case OpKind::kBalanceBackward:
      return 8.0;
    case OpKind::kCombineBackward:
    case OpKind::kRmsNormBackwardWeight:
    case OpKind::kQkNormBackwardWeight:
    case OpKind::kSquaredErrorForward:
    case OpKind::kSquaredErrorBackward:
      return 3.0;
    case OpKind::kSumOfSquares:
    case OpKind::kChecksum:
      return 2.0;
    default:
      return 1.0;
  }
}

}  // namespace

std::string_view op_kind_name(OpKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

double op_flop(const OpCall& call) {
  const TensorView& first = call.inputs[0];
  switch (call.kind) {
    case OpKind::kMatmul:
      return 2.0 * dim(call.outputs[0], 0) * dim(call.outputs[0], 1) *
             dim(first, call.transpose_a ? 0 : 1);
    case OpKind::kAttentionForward:
      return attention_forward_flop(call, dim(first, 0));
    case OpKind::kAttentionBackward:
      return 2.5 * attention_forward_flop(call, dim(first, 0));
    case OpKind::kAttentionSinkBackward:
      return 2.0 * static_cast<double>(first.element_count());
    case OpKind::kLinearCrossEntropyForward:
      return 2.0 * dim(first, 0) * dim(call.inputs[1], 0) * dim(first, 1);
    case OpKind::kLinearCrossEntropyBackwardInput:
    case OpKind::kLinearCrossEntropyBackwardWeight:
      // The logits are computed again.
      return 4.0 * dim(first, 0) * dim(call.inputs[1], 0) * dim(first, 1);
    case OpKind::kRotary:
      // Six for each pair of the query and key heads.
      return 3.0 * dim(call.outputs[0], 0) * static_cast<double>(call.heads + call.kv_heads) *
             static_cast<double>(call.head_dim);
    case OpKind::kGatedSiluForward:
      return 10.0 * static_cast<double>(call.outputs[0].element_count());
    case OpKind::kGatedSiluBackward:
      return 18.0 * static_cast<double>(first.element_count());
    case OpKind::kRouteBackward:
      return flop_per_element(call) * static_cast<double>(call.inputs[1].element_count());
    case OpKind::kGroupedMatmul:
      return 2.0 * dim(call.outputs[0], 0) * dim(call.outputs[0], 1) * dim(first, 1);
    case OpKind::kGroupedMatmulWeight:
      return 2.0 * dim(first, 0) * dim(first, 1) * dim(call.inputs[1], 1);
    case OpKind::kGatherRows:
      return static_cast<double>(call.outputs[0].element_count());
    case OpKind::kCombineRows:
      return 2.0 * static_cast<double>(first.element_count());
    case OpKind::kEmbeddingForward:
      return static_cast<double>(call.outputs[0].element_count());
    default:
      return flop_per_element(call) * static_cast<double>(first.element_count());
  }
}

AdamWFactors adamw_factors(const OpCall& call) {
  const AdamWNumbers& numbers = call.adamw;
  // In double: 1 - beta^step loses half its digits in float for the first steps.
  double step = static_cast<double>(numbers.step);
  double correction1 = 1.0 - std::pow(double{numbers.beta1}, step);
  double correction2 = 1.0 - std::pow(double{numbers.beta2}, step);
  double rate = numbers.learning_rate;
  AdamWFactors factors{};
  factors.beta1 = numbers.beta1;
  factors.one_minus_beta1 = static_cast<float>(1.0 - double{numbers.beta1});
  factors.beta2 = numbers.beta2;
  factors.one_minus_beta2 = static_cast<float>(1.0 - double{numbers.beta2});
  factors.gradient_scale = call.scale;
  factors.epsilon = call.epsilon;
  factors.keep = static_cast<float>(1.0 - rate * double{numbers.weight_decay});
  factors.step_size = static_cast<float>(rate / correction1);
  factors.second_correction = static_cast<float>(1.0 / std::sqrt(correction2));
  return factors;
}

}  // namespace stagecoach
