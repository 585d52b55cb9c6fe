#pragma once

#include "core/label.h"
#include "core/random.h"
#include "hal/op_call.h"
#include "hal/tensor.h"

namespace stagecoach {

/// What each method of Ops takes; ops.h says what it means. Operands that may be absent are none by
/// default. Plain data.
struct OpRequests {
  struct EmbeddingForward {
    TensorView out, ids, table, positions;
    int64_t sequence = 0;
    Label label;
  };
  struct EmbeddingBackward {
    TensorView table_grad, positions_grad, out_grad, ids;
    int64_t sequence = 0;
    Label label;
  };
  struct LayerNormForward {
    TensorView out, mean, rstd, in, weight, bias;
    float epsilon = 0.0f;
    Label label;
  };
  struct LayerNormBackwardInput {
    TensorView in_grad, out_grad, in, weight, mean, rstd;
    bool accumulate = false;
    Label label;
  };
  struct LayerNormBackwardWeight {
    TensorView weight_grad, bias_grad, out_grad, in, mean, rstd;
    Label label;
  };
  struct Matmul {
    TensorView out, a, b, bias;
    bool transpose_a = false, transpose_b = false, accumulate = false;
    Label label;
  };
  struct ColumnSum {
    TensorView out, in;
    Label label;
  };
  struct GeluForward {
    TensorView out, in;
    Label label;
  };
  struct GeluBackward {
    TensorView in_grad, out_grad, in;
    bool accumulate = false;
    Label label;
  };
  struct AttentionForward {
    TensorView out, lse, qkv, sinks, document_starts;
    int64_t sequence = 0, heads = 0, kv_heads = 0, head_dim = 0, window = 0;
    float scale = 1.0f, drop_probability = 0.0f;
    RandomKey key;
    Label label;
  };
  struct AttentionBackward {
    TensorView qkv_grad, out_grad, qkv, out, lse, sinks, document_starts;
    int64_t sequence = 0, heads = 0, kv_heads = 0, head_dim = 0, window = 0;
    float scale = 1.0f, drop_probability = 0.0f;
    RandomKey key;
    Label label;
  };
  struct AttentionSinkBackward {
    TensorView sinks_grad, out_grad, out, lse, sinks;
    int64_t heads = 0, head_dim = 0;
    Label label;
  };
  struct Add {
    TensorView out, a, b;
    Label label;
  };
  struct Multiply {
    TensorView out, a, b;
    bool accumulate = false;
    Label label;
  };
  struct Dropout {
    TensorView out, in, residual;
    float drop_probability = 0.0f;
    RandomKey key;
    bool accumulate = false;
    Label label;
  };
  struct LinearCrossEntropyForward {
    TensorView loss, lse, hidden, weight, labels;
    Label label;
    LossTerms terms = {};
  };
  struct LinearCrossEntropyBackwardInput {
    TensorView hidden_grad, hidden, weight, labels, lse;
    float scale = 1.0f;
    bool accumulate = false;
    Label label;
    LossTerms terms = {};
  };
  struct LinearCrossEntropyBackwardWeight {
    TensorView weight_grad, hidden, weight, labels, lse;
    float scale = 1.0f;
    Label label;
    LossTerms terms = {};
  };
  struct SquaredErrorForward {
    TensorView loss, prediction, target;
    Label label;
  };
  struct SquaredErrorBackward {
    TensorView prediction_grad, prediction, target;
    float scale = 1.0f;
    bool accumulate = false;
    Label label;
  };
  struct Accumulate {
    TensorView out, in;
    Label label;
  };
  struct Convert {
    TensorView out, in;
    Label label;
  };
  struct SumOfSquares {
    TensorView out, in;
    Label label;
  };
  struct Checksum {
    TensorView out, in;
    Label label;
  };
  struct RmsNormForward {
    TensorView out, rstd, sum_out, in, weight, residual;
    float epsilon = 0.0f;
    Label label;
  };
  struct RmsNormBackwardInput {
    TensorView in_grad, out_grad, in, weight, rstd;
    bool accumulate = false;
    Label label;
  };
  struct RmsNormBackwardWeight {
    TensorView weight_grad, out_grad, in, rstd;
    Label label;
  };
  struct Rotary {
    TensorView qkv, cosines, sines;
    int64_t sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
    bool inverse = false;
    Label label;
  };
  struct QkNormForward {
    TensorView out, rstd, in, q_weight, k_weight;
    int64_t heads = 0, kv_heads = 0, head_dim = 0;
    float epsilon = 0.0f;
    Label label;
  };
  struct QkNormBackwardInput {
    TensorView in_grad, out_grad, in, q_weight, k_weight, rstd;
    int64_t heads = 0, kv_heads = 0, head_dim = 0;
    Label label;
  };
  struct QkNormBackwardWeight {
    TensorView q_weight_grad, k_weight_grad, out_grad, in, rstd;
    int64_t heads = 0, kv_heads = 0, head_dim = 0;
    Label label;
  };
  struct GatedSiluForward {
    TensorView out, gate, up;
    GatedNumbers numbers;
    Label label;
  };
  struct GatedSiluBackward {
    TensorView gate_grad, up_grad, out_grad, gate, up;
    GatedNumbers numbers;
    Label label;
  };
  struct AdamW {
    TensorView parameters, first_moment, second_moment, gradient;
    AdamWNumbers numbers;
    float epsilon = 1e-8f, gradient_scale = 1.0f;
    Label label;
  };
  struct FiniteCheck {
    TensorView out, in;
    Label label;
  };
  struct JoinMaster {
    TensorView out, high, remainder;
    Label label;
  };
  struct SplitMaster {
    TensorView high, remainder, in;
    Label label;
  };
};

}  // namespace stagecoach
