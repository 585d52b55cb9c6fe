#pragma once

#include <string_view>

#include "core/status.h"
#include "hal/expert_ops.h"
#include "hal/op_call.h"
#include "hal/op_requests.h"
#include "hal/stream.h"

namespace stagecoach {

/// The math a layer needs, on one device. Methods check shapes, dtypes and places, then enqueue on
/// a stream of the same device and return the timepoint; the CPU backend's results are the oracle.
///
/// Words: R rows (tokens of all sequences of a micro-batch), T tokens a sequence, C columns, H
/// heads, V vocabulary. "storage" tensors are all of one dtype, fp32, bf16 or fp16; arithmetic is
/// fp32. Weight-gradient outputs are fp32 and are always added to, so that micro-batches
/// accumulate. Input-gradient outputs are storage and overwritten, or added to (in fp32, then
/// rounded once) with `accumulate`. Every kernel gives the same bits every run and for any number
/// of threads; only a GPU's library attention backward may sum in any order, and not where the
/// device was opened for deterministic results (OpenOptions).
/// Aliasing: gelu, add, multiply, dropout and combine_backward may write exactly onto one of their
/// inputs; any other overlap of an output with an operand is refused. Those of experts are in
/// expert_ops.h. "Call:" lines give the operand order of the OpCall, outputs | inputs. Errors:
/// invalid argument for shapes, dtypes, aliasing, or operands not in this device's memory. Thread
/// rule: any thread.
class Ops : public OpRequests, public ExpertOps {
 public:
  ~Ops() override = default;

  /// out[R,C] = table[ids[r]] + positions[r % T]; `positions` [>=T,C] may be none. ids int32 in
  /// [0,V); an id outside is a data loss failure of the stream.
  /// Call: out | ids, table, positions.
  Result<Timepoint> embedding_forward(Stream& stream, const EmbeddingForward& request);

  /// table_grad[V,C] and positions_grad[>=T,C] (fp32, added to; either may be none) from
  /// out_grad[R,C]. Ids outside as above.
  /// Call: table_grad, positions_grad | out_grad, ids.
  Result<Timepoint> embedding_backward(Stream& stream, const EmbeddingBackward& request);

  /// out = (in - mean) * rstd * weight + bias over C; mean[R], rstd[R] fp32 are outputs; bias may
  /// be none. Call: out, mean, rstd | in, weight, bias.
  Result<Timepoint> layer_norm_forward(Stream& stream, const LayerNormForward& request);

  /// in_grad[R,C]. Call: in_grad | out_grad, in, weight, mean, rstd.
  Result<Timepoint> layer_norm_backward_input(Stream& stream,
                                              const LayerNormBackwardInput& request);

  /// weight_grad[C], bias_grad[C] (fp32, added to; bias_grad may be none).
  /// Call: weight_grad, bias_grad | out_grad, in, mean, rstd.
  Result<Timepoint> layer_norm_backward_weight(Stream& stream,
                                               const LayerNormBackwardWeight& request);

  /// out[M,N] = op(a)[M,K] * op(b)[K,N] (+ bias[N], may be none) (+ out when `accumulate`). a, b
  /// and bias are storage; out is storage or fp32. K is never split, so bits do not depend on
  /// threads. Call: out | a, b, bias.
  Result<Timepoint> matmul(Stream& stream, const Matmul& request);

  /// out[C] (fp32, added to) += sum over rows of in[R,C]: the gradient of a bias. Call: out | in.
  Result<Timepoint> column_sum(Stream& stream, const ColumnSum& request);

  /// GELU by the tanh approximation, as GPT-2 defines it. Call: out | in.
  Result<Timepoint> gelu_forward(Stream& stream, const GeluForward& request);
  /// Call: in_grad | out_grad, in.
  Result<Timepoint> gelu_backward(Stream& stream, const GeluBackward& request);

  /// Causal attention within each sequence. qkv[R, (H + 2*Hkv) * D] holds all query heads, then key
  /// heads, then value heads; out[R, H*D]; lse[R,H] fp32 (log of the softmax denominator).
  /// With `window` > 0 the query at position p sees keys from p - window + 1 on. sinks[H], may be
  /// none, is a score that joins a head's denominators and has no value. document_starts int32 [R],
  /// may be none: the position in its sequence where a row's document begins; keys before it are
  /// not seen. Each is its row's own position or as the row's before it; else a data loss failure
  /// of the stream.
  /// Probabilities are dropped with `drop_probability`, keyed by element ((row * H + head) * T +
  /// key position), replayed by the backward pass. H % Hkv == 0.
  /// Call: out, lse | qkv, sinks, document_starts.
  Result<Timepoint> attention_forward(Stream& stream, const AttentionForward& request);
  /// qkv_grad (overwritten) from out_grad and what the forward pass read and wrote.
  /// Call: qkv_grad | out_grad, qkv, out, lse, sinks, document_starts.
  Result<Timepoint> attention_backward(Stream& stream, const AttentionBackward& request);
  /// sinks_grad[H] (fp32, added to) -= sum over rows of exp(sinks - lse) * (out . out_grad).
  /// Call: sinks_grad | out_grad, out, lse, sinks.
  Result<Timepoint> attention_sink_backward(Stream& stream, const AttentionSinkBackward& request);

  /// out = a + b, elementwise, one shape. Call: out | a, b.
  Result<Timepoint> add(Stream& stream, const Add& request);
  /// out = a * b, elementwise (+ out when `accumulate`). Call: out | a, b.
  Result<Timepoint> multiply(Stream& stream, const Multiply& request);

  /// out = (residual +) in * keep / (1 - p), `keep` drawn per element from `key` (element index in
  /// row-major order); residual may be none; p = 0 draws nothing. The backward pass is the same
  /// call on the gradient. With `accumulate` (no residual then) out is added to.
  /// Call: out | in, residual.
  Result<Timepoint> dropout(Stream& stream, const Dropout& request);

  /// Fused linear + cross-entropy: logits = hidden[R,C] * weight[V,C]^T exist only in pieces.
  /// labels int32 [R], -1 = ignored, others outside [0,V) a data loss failure of the stream.
  /// loss[R] fp32 with its LossTerms (0 where ignored), lse[R] fp32.
  /// Call: loss, lse | hidden, weight, labels.
  Result<Timepoint> linear_cross_entropy_forward(Stream& stream,
                                                 const LinearCrossEntropyForward& request);
  /// hidden_grad = scale * d(sum of losses)/d hidden.
  /// Call: hidden_grad | hidden, weight, labels, lse.
  Result<Timepoint> linear_cross_entropy_backward_input(
      Stream& stream, const LinearCrossEntropyBackwardInput& request);
  /// weight_grad (fp32, added to) += scale * d(sum of losses)/d weight.
  /// Call: weight_grad | hidden, weight, labels, lse.
  Result<Timepoint> linear_cross_entropy_backward_weight(
      Stream& stream, const LinearCrossEntropyBackwardWeight& request);

  /// loss[R] fp32 = mean over C of (prediction - target)^2; target fp32 [R,C].
  /// Call: loss | prediction, target.
  Result<Timepoint> squared_error_forward(Stream& stream, const SquaredErrorForward& request);
  /// prediction_grad = scale * d(sum of losses)/d prediction.
  /// Call: prediction_grad | prediction, target.
  Result<Timepoint> squared_error_backward(Stream& stream, const SquaredErrorBackward& request);

  /// out (fp32) += in (storage or fp32), one shape. Call: out | in.
  Result<Timepoint> accumulate(Stream& stream, const Accumulate& request);
  /// out = in, rounded to out's dtype (nearest, ties to even); fp32, bf16 or fp16 each; fp32 to
  /// fp32 keeps all bits. Either may be pinned host memory of a device whose DeviceInfo says that
  /// kernels reach it.
  /// Call: out | in.
  Result<Timepoint> convert(Stream& stream, const Convert& request);
  /// out[1] fp64 = sum of squares in fp64, in pieces, lanes and an order that square_sum.h has.
  /// Call: out | in.
  Result<Timepoint> sum_of_squares(Stream& stream, const SumOfSquares& request);
  /// out[1] uint64 = order-dependent checksum of in's bytes (size a multiple of 4): h = h *
  /// 0x100000001b3 ^ word, over 32-bit words, from 0xcbf29ce484222325. Call: out | in.
  Result<Timepoint> checksum(Stream& stream, const Checksum& request);

  /// sum_out = in + residual (both none: in itself), out = sum_out * rstd * weight over C, of
  /// sum_out as it is stored; rstd[R] fp32 = 1 / sqrt(mean of squares + epsilon) is an output.
  /// Call: out, rstd, sum_out | in, weight, residual.
  Result<Timepoint> rms_norm_forward(Stream& stream, const RmsNormForward& request);
  /// in_grad[R,C]; `in` is what was normalised. Call: in_grad | out_grad, in, weight, rstd.
  Result<Timepoint> rms_norm_backward_input(Stream& stream, const RmsNormBackwardInput& request);
  /// weight_grad[C] (fp32, added to). Call: weight_grad | out_grad, in, rstd.
  Result<Timepoint> rms_norm_backward_weight(Stream& stream, const RmsNormBackwardWeight& request);

  /// Rotates the query and key heads of qkv (as attention's) in place: elements i and i + D/2 of a
  /// head by the angle whose cosine and sine are in cosines, sines [>=T, D/2] fp32 at the row's
  /// position; by minus that angle with `inverse`, which is the backward pass.
  /// Call: qkv | cosines, sines.
  Result<Timepoint> rotary(Stream& stream, const Rotary& request);

  /// RMS norm of each query head with q_weight[D] and each key head with k_weight[D]; values are
  /// copied. rstd[R, H + Hkv] fp32 is an output. Call: out, rstd | in, q_weight, k_weight.
  Result<Timepoint> qk_norm_forward(Stream& stream, const QkNormForward& request);
  /// Call: in_grad | out_grad, in, q_weight, k_weight, rstd.
  Result<Timepoint> qk_norm_backward_input(Stream& stream, const QkNormBackwardInput& request);
  /// Both [D], fp32, added to. Call: q_weight_grad, k_weight_grad | out_grad, in, rstd.
  Result<Timepoint> qk_norm_backward_weight(Stream& stream, const QkNormBackwardWeight& request);

  /// out[R,C] = silu(gate) * up, or what GatedNumbers says; without `up`, gate[R,2C] holds a row's
  /// gate, then its up, or both in turn. Call: out | gate, up.
  Result<Timepoint> gated_silu_forward(Stream& stream, const GatedSiluForward& request);
  /// The gradients lie as gate and up do. Call: gate_grad, up_grad | out_grad, gate, up.
  Result<Timepoint> gated_silu_backward(Stream& stream, const GatedSiluBackward& request);

  /// One AdamW step in place (as train/optimizer.h) on fp32 parameters and moments; gradient fp32
  /// or storage, times gradient_scale. Call: parameters, first_moment, second_moment | gradient.
  Result<Timepoint> adamw(Stream& stream, const AdamW& request);
  /// out[1] uint64 = how many elements are infinite or NaN. Call: out | in.
  Result<Timepoint> finite_check(Stream& stream, const FiniteCheck& request);

  /// out fp32 = the weights whose halves are `high` bf16 and `remainder` int16: bits = (high << 16)
  /// + remainder (memory/split_master.h). Call: out | high, remainder.
  Result<Timepoint> join_master(Stream& stream, const JoinMaster& request);
  /// The halves of finite weights: high = (bits + 0x8000) >> 16. Call: high, remainder | in.
  Result<Timepoint> split_master(Stream& stream, const SplitMaster& request);

  /// Validates and enqueues any call: what the methods above do after filling it in.
  Result<Timepoint> run(Stream& stream, const OpCall& call) final;

  /// Which kernel or library serves `kind`, for `devices --verbose`: "oneDNN", "own loops".
  virtual std::string_view provider(OpKind kind) const = 0;

 private:
  virtual Status do_run(Stream& stream, const OpCall& call) = 0;
};

/// Checks operand counts, shapes, dtypes, memory and aliasing of a call against the rules above.
/// The message names op, label and operand, what was found and what is expected. Pure.
Status validate_op(const OpCall& call, const Device& device);

}  // namespace stagecoach
