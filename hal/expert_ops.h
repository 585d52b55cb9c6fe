#pragma once

#include "core/status.h"
#include "hal/op_call.h"
#include "hal/stream.h"
#include "hal/tensor.h"

namespace stagecoach {

/// What each method of ExpertOps takes. Operands that may be absent are none by default.
struct ExpertRequests {
  struct RouteForward {
    TensorView choices, weights, logits;
    bool over_chosen = false;
    Label label;
  };
  struct RouteBackward {
    TensorView logits_grad, weights_grad, logits, choices, weights;
    bool over_chosen = false;
    Label label;
  };
  struct BalanceForward {
    TensorView losses, logits, order, offsets, labels;
    int64_t sequence = 0;  ///< rows of one sequence
    Label label;
  };
  struct BalanceBackward {
    TensorView logits_grad, logits, order, offsets, labels;
    int64_t sequence = 0;
    float grad_scale = 1.0f;
    Label label;
  };
  struct GroupRows {
    TensorView order, places, offsets, choices;
    Label label;
  };
  struct GatherRows {
    TensorView out, in, order, weights;
    Label label;
  };
  struct CombineRows {
    TensorView out, in, places, weights, residual;
    bool accumulate = false;
    Label label;
  };
  struct CombineBackward {
    TensorView in_grad, weights_grad, product_grad, in, places, weights, out_grad, bias, choices;
    Label label;
  };
  struct GroupedMatmul {
    TensorView out, a, b, offsets, bias;
    bool transpose_b = false;
    Label label;
  };
  struct GroupedMatmulWeight {
    TensorView weight_grad, a, b, offsets;
    Label label;
  };
  struct GroupedColumnSum {
    TensorView out, in, offsets;
    Label label;
  };
};

/// The operations of layers whose rows go to some of many experts; part of Ops, whose rules and
/// words hold here. E experts, K of them chosen for each row, R * K rows grouped by expert. Choice
/// s = row * K + k is the k-th of its row. Nothing depends on the host knowing how many rows an
/// expert has: shapes are fixed by R * K, and experts without rows cost nothing and get no
/// gradient. order, places and offsets are what group_rows gave for choices.
/// Thread rule: any thread.
class ExpertOps : public ExpertRequests {
 public:
  virtual ~ExpertOps() = default;

  /// choices[R,K] int32 = the experts with the largest logits[R,E], falling, equal ones by number
  /// (NaN counts as less than all); weights[R,K] fp32 = their share of the softmax over all
  /// experts, or over the chosen ones alone with `over_chosen` (which is also what dividing the
  /// former by their sum gives). Call: choices, weights | logits.
  Result<Timepoint> route_forward(Stream& stream, const RouteForward& request);
  /// logits_grad[R,E]. Call: logits_grad | weights_grad, logits, choices, weights.
  Result<Timepoint> route_backward(Stream& stream, const RouteBackward& request);

  /// The load-balancing loss of each sequence (Switch Transformer, arXiv 2101.03961, with the means
  /// of one sequence, as DeepSeek-V3 has it, arXiv 2412.19437): E * sum over e of f_e P_e, where
  /// f_e is the number of choices of e a row and P_e the mean of e's share of the softmax over all
  /// experts. A row counts where it or one behind it in its sequence has a label >= 0.
  /// losses[R] fp32 sum up to that loss times the sequence's number of labels >= 0; rows that do
  /// not count have 0. Call: losses | logits, order, offsets, labels.
  Result<Timepoint> balance_forward(Stream& stream, const BalanceForward& request);
  /// logits_grad[R,E] (added to) += grad_scale * gradient of the sum of losses; f_e are constants.
  /// Call: logits_grad | logits, order, offsets, labels.
  Result<Timepoint> balance_backward(Stream& stream, const BalanceBackward& request);

  /// Sorts choices by expert, within one by number: order[R*K] int32 = the choice at each place,
  /// places[R,K] int32 = the place of each choice, offsets[E+1] int32 = the first place of each
  /// expert, then R * K. A choice outside [0,E) is a data loss failure of the stream.
  /// Call: order, places, offsets | choices.
  Result<Timepoint> group_rows(Stream& stream, const GroupRows& request);
  /// out[R*K,C] = in[R,C] by expert: the row of each place's choice (times its weight[R,K], may be
  /// none). Call: out | in, order, weights.
  Result<Timepoint> gather_rows(Stream& stream, const GatherRows& request);
  /// out[R,C] = (residual +) sum over k of (weights[R,K] *) in[R*K,C] at places[R,K] (+ out with
  /// `accumulate`), in the order of k. Weights and residual may be none.
  /// Call: out | in, places, weights, residual.
  Result<Timepoint> combine_rows(Stream& stream, const CombineRows& request);
  /// What lies under a weighted sum of products (in[R*K,C] times a matrix, plus bias[E,O], may be
  /// none): from product_grad[R*K,C], the sum's gradient times the transposed matrix, not weighted,
  /// in_grad = product_grad * weight, and weights_grad[R,K] fp32 = in . product_grad (+ bias of the
  /// choice . out_grad[R,O]). in_grad may be product_grad. out_grad and choices come with bias.
  /// Call: in_grad, weights_grad | product_grad, in, places, weights, out_grad, bias, choices.
  Result<Timepoint> combine_backward(Stream& stream, const CombineBackward& request);

  /// out[N,O] = a[N,C] * b of the row's expert (+ bias[E,O] of it, may be none); rows lie by expert
  /// as offsets[E+1] say. b is [E,C,O], or [E,O,C] with `transpose_b`.
  /// Call: out | a, b, offsets, bias.
  Result<Timepoint> grouped_matmul(Stream& stream, const GroupedMatmul& request);
  /// weight_grad[E,C,O] (fp32, added to) += a[N,C]^T * b[N,O] of each expert's rows.
  /// Call: weight_grad | a, b, offsets.
  Result<Timepoint> grouped_matmul_weight(Stream& stream, const GroupedMatmulWeight& request);
  /// out[E,C] (fp32, added to) += sum over each expert's rows of in[N,C], in order.
  /// Call: out | in, offsets.
  Result<Timepoint> grouped_column_sum(Stream& stream, const GroupedColumnSum& request);

 private:
  virtual Result<Timepoint> run(Stream& stream, const OpCall& call) = 0;
};

}  // namespace stagecoach
