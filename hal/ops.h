#pragma once

#include "core/status.h"
#include "hal/op_call.h"
#include "hal/stream.h"

namespace stagecoach {

/// The math a layer needs, on one device. Methods check shapes, dtypes and places, then enqueue on
/// a stream of the same device and return the timepoint; the CPU backend's results are the oracle.
///
/// Words: R rows (tokens of all sequences of a micro-batch), T tokens a sequence, C columns, H heads,
/// V vocabulary. "storage" tensors are all of one dtype, fp32, bf16 or fp16; arithmetic is fp32.
/// Weight-gradient outputs are fp32 and are always added to, so that micro-batches accumulate.
/// Input-gradient outputs are storage and overwritten, or added to (in fp32, then rounded once)
/// with `accumulate`. Every kernel gives the same bits every run and for any number of threads.
/// Errors: invalid argument for shapes, dtypes, or operands not in this device's memory.
/// Thread rule: any thread.
class Ops {
 public:
  virtual ~Ops() = default;

  /// out[R,C] = table[ids[r]] + positions[r % T]; `positions` [>=T,C] may be none. ids int32 in [0,V);
  /// an id outside is a data loss failure of the stream.
  struct EmbeddingForward { TensorView out, ids, table, positions; int64_t sequence; Label label; };
  Result<Timepoint> embedding_forward(Stream& stream, const EmbeddingForward& request);

  /// table_grad[V,C] and positions_grad (fp32, added to; either may be none) from out_grad[R,C].
  struct EmbeddingBackward { TensorView table_grad, positions_grad, out_grad, ids; int64_t sequence; Label label; };
  Result<Timepoint> embedding_backward(Stream& stream, const EmbeddingBackward& request);

  /// out = (in - mean) * rstd * weight + bias over C; mean[R], rstd[R] fp32 are outputs; bias may be none.
  struct LayerNormForward { TensorView out, mean, rstd, in, weight, bias; float epsilon; Label label; };
  Result<Timepoint> layer_norm_forward(Stream& stream, const LayerNormForward& request);

  struct LayerNormBackwardInput { TensorView in_grad, out_grad, in, weight, mean, rstd; bool accumulate; Label label; };
  Result<Timepoint> layer_norm_backward_input(Stream& stream, const LayerNormBackwardInput& request);

  /// weight_grad[C], bias_grad[C] (fp32, added to; bias_grad may be none).
  struct LayerNormBackwardWeight { TensorView weight_grad, bias_grad, out_grad, in, mean, rstd; Label label; };
  Result<Timepoint> layer_norm_backward_weight(Stream& stream, const LayerNormBackwardWeight& request);

  /// out[M,N] = op(a)[M,K] * op(b)[K,N] (+ bias[N], may be none) (+ out when `accumulate`). a and b are
  /// storage; out is storage or fp32. K is never split, so bits do not depend on threads.
  struct Matmul { TensorView out, a, b, bias; bool transpose_a, transpose_b, accumulate; Label label; };
  Result<Timepoint> matmul(Stream& stream, const Matmul& request);

  /// out[C] (fp32, added to) += sum over rows of in[R,C]: the gradient of a bias.
  struct ColumnSum { TensorView out, in; Label label; };
  Result<Timepoint> column_sum(Stream& stream, const ColumnSum& request);

  /// GELU by the tanh approximation, as GPT-2 defines it.
  struct GeluForward { TensorView out, in; Label label; };
  Result<Timepoint> gelu_forward(Stream& stream, const GeluForward& request);
  struct GeluBackward { TensorView in_grad, out_grad, in; bool accumulate; Label label; };
  Result<Timepoint> gelu_backward(Stream& stream, const GeluBackward& request);

  /// Causal attention within each sequence. qkv[R, (H + 2*Hkv) * D] holds all query heads, then key
  /// heads, then value heads; out[R, H*D]; lse[R,H] fp32 (log of the softmax denominator). Probabilities
  /// are dropped with `drop_probability`, keyed, replayed by the backward pass. H % Hkv == 0.
  struct AttentionForward {
    TensorView out, lse, qkv; int64_t sequence, heads, kv_heads, head_dim; float scale;
    float drop_probability; RandomKey key; Label label;
  };
  Result<Timepoint> attention_forward(Stream& stream, const AttentionForward& request);
  /// qkv_grad (overwritten) from out_grad and what the forward pass read and wrote.
  struct AttentionBackward {
    TensorView qkv_grad, out_grad, qkv, out, lse; int64_t sequence, heads, kv_heads, head_dim; float scale;
    float drop_probability; RandomKey key; Label label;
  };
  Result<Timepoint> attention_backward(Stream& stream, const AttentionBackward& request);

  /// out = a + b, elementwise, one shape; out may be a or b.
  struct Add { TensorView out, a, b; Label label; };
  Result<Timepoint> add(Stream& stream, const Add& request);
  /// out = a * b, elementwise (+ out when `accumulate`).
  struct Multiply { TensorView out, a, b; bool accumulate; Label label; };
  Result<Timepoint> multiply(Stream& stream, const Multiply& request);

  /// out = (residual +) in * keep / (1 - p), `keep` drawn per element from `key` (element index in row-
  /// major order); residual may be none; p = 0 draws nothing. The backward pass is the same call on
  /// the gradient. With `accumulate` (no residual then) out is added to.
  struct Dropout { TensorView out, in, residual; float drop_probability; RandomKey key; bool accumulate; Label label; };
  Result<Timepoint> dropout(Stream& stream, const Dropout& request);

  /// Fused linear + cross-entropy: logits = hidden[R,C] * weight[V,C]^T exist only in pieces. labels int32
  /// [R], -1 = ignored. loss[R] fp32 (0 where ignored), lse[R] fp32.
  struct LinearCrossEntropyForward { TensorView loss, lse, hidden, weight, labels; Label label; };
  Result<Timepoint> linear_cross_entropy_forward(Stream& stream, const LinearCrossEntropyForward& request);
  /// hidden_grad = scale * d(sum of losses)/d hidden.
  struct LinearCrossEntropyBackwardInput { TensorView hidden_grad, hidden, weight, labels, lse; float scale; bool accumulate; Label label; };
  Result<Timepoint> linear_cross_entropy_backward_input(Stream& stream, const LinearCrossEntropyBackwardInput& request);
  struct LinearCrossEntropyBackwardWeight { TensorView weight_grad, hidden, weight, labels, lse; float scale; Label label; };
  Result<Timepoint> linear_cross_entropy_backward_weight(Stream& stream, const LinearCrossEntropyBackwardWeight& request);

  /// loss[R] fp32 = mean over C of (prediction - target)^2; target fp32 [R,C].
  struct SquaredErrorForward { TensorView loss, prediction, target; Label label; };
  Result<Timepoint> squared_error_forward(Stream& stream, const SquaredErrorForward& request);
  /// prediction_grad = scale * d(sum of losses)/d prediction.
  struct SquaredErrorBackward { TensorView prediction_grad, prediction, target; float scale; bool accumulate; Label label; };
  Result<Timepoint> squared_error_backward(Stream& stream, const SquaredErrorBackward& request);

  /// out (fp32) += in (storage or fp32).
  struct Accumulate { TensorView out, in; Label label; };
  Result<Timepoint> accumulate(Stream& stream, const Accumulate& request);
  /// out = in, rounded to out's dtype (nearest, ties to even).
  struct Convert { TensorView out, in; Label label; };
  Result<Timepoint> convert(Stream& stream, const Convert& request);
  /// out[1] fp64 = sum of squares in pieces of 64 Ki elements, each summed in fp64 in index order.
  struct SumOfSquares { TensorView out, in; Label label; };
  Result<Timepoint> sum_of_squares(Stream& stream, const SumOfSquares& request);
  /// out[1] uint64 = order-dependent checksum of in's bytes (size a multiple of 4): h = h * 0x100000001b3 ^ word,
  /// over 32-bit words, from 0xcbf29ce484222325.
  struct Checksum { TensorView out, in; Label label; };
  Result<Timepoint> checksum(Stream& stream, const Checksum& request);

  /// Validates and enqueues any call: what the methods above do after filling it in.
  Result<Timepoint> run(Stream& stream, const OpCall& call);

  /// Which kernel or library serves `kind`, for `devices --verbose`: "oneDNN", "own loops".
  virtual std::string_view provider(OpKind kind) const = 0;

 private:
  virtual Status do_run(Stream& stream, const OpCall& call) = 0;
};

/// Checks operand counts, shapes, dtypes and memory of a call against the rules above; pure.
Status validate_op(const OpCall& call, const Device& device);

}  // namespace stagecoach
