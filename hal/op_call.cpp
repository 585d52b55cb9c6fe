#include "hal/op_call.h"

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
};

double dim(const TensorView& tensor, int axis) {
  return static_cast<double>(tensor.shape[axis]);
}

/// Scores and weighted values of the causal half, one multiply-add each a head dimension.
double attention_forward_flop(const OpCall& call, double rows) {
  double sequence = static_cast<double>(call.sequence);
  double pairs = rows / sequence * sequence * (sequence + 1.0) / 2.0;
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
    case OpKind::kLinearCrossEntropyForward:
      return 2.0 * dim(first, 0) * dim(call.inputs[1], 0) * dim(first, 1);
    case OpKind::kLinearCrossEntropyBackwardInput:
    case OpKind::kLinearCrossEntropyBackwardWeight:
      // The logits are computed again.
      return 4.0 * dim(first, 0) * dim(call.inputs[1], 0) * dim(first, 1);
    case OpKind::kEmbeddingForward:
      return static_cast<double>(call.outputs[0].element_count());
    default:
      return flop_per_element(call) * static_cast<double>(first.element_count());
  }
}

}  // namespace stagecoach
