#include "hal/expert_ops.h"

#include "hal/make_op_call.h"

namespace stagecoach {

using internal::make_op_call;

Result<Timepoint> ExpertOps::route_forward(Stream& stream, const RouteForward& request) {
  OpCall call = make_op_call(OpKind::kRouteForward, request.label,
                             {request.choices, request.weights}, {request.logits});
  call.over_chosen = request.over_chosen;
  return run(stream, call);
}

Result<Timepoint> ExpertOps::route_backward(Stream& stream, const RouteBackward& request) {
  OpCall call =
      make_op_call(OpKind::kRouteBackward, request.label, {request.logits_grad},
                   {request.weights_grad, request.logits, request.choices, request.weights});
  call.over_chosen = request.over_chosen;
  return run(stream, call);
}

Result<Timepoint> ExpertOps::balance_forward(Stream& stream, const BalanceForward& request) {
  OpCall call = make_op_call(OpKind::kBalanceForward, request.label, {request.losses},
                             {request.logits, request.order, request.offsets, request.labels});
  call.sequence = request.sequence;
  return run(stream, call);
}

Result<Timepoint> ExpertOps::balance_backward(Stream& stream, const BalanceBackward& request) {
  OpCall call = make_op_call(OpKind::kBalanceBackward, request.label, {request.logits_grad},
                             {request.logits, request.order, request.offsets, request.labels});
  call.sequence = request.sequence;
  call.scale = request.grad_scale;
  return run(stream, call);
}

Result<Timepoint> ExpertOps::group_rows(Stream& stream, const GroupRows& request) {
  return run(stream,
             make_op_call(OpKind::kGroupRows, request.label,
                          {request.order, request.places, request.offsets}, {request.choices}));
}

Result<Timepoint> ExpertOps::gather_rows(Stream& stream, const GatherRows& request) {
  return run(stream, make_op_call(OpKind::kGatherRows, request.label, {request.out},
                                  {request.in, request.order, request.weights}));
}

Result<Timepoint> ExpertOps::combine_rows(Stream& stream, const CombineRows& request) {
  OpCall call = make_op_call(OpKind::kCombineRows, request.label, {request.out},
                             {request.in, request.places, request.weights, request.residual});
  call.accumulate = request.accumulate;
  return run(stream, call);
}

Result<Timepoint> ExpertOps::combine_backward(Stream& stream, const CombineBackward& request) {
  return run(
      stream,
      make_op_call(OpKind::kCombineBackward, request.label, {request.in_grad, request.weights_grad},
                   {request.product_grad, request.in, request.places, request.weights,
                    request.out_grad, request.bias, request.choices}));
}

Result<Timepoint> ExpertOps::grouped_matmul(Stream& stream, const GroupedMatmul& request) {
  OpCall call = make_op_call(OpKind::kGroupedMatmul, request.label, {request.out},
                             {request.a, request.b, request.offsets, request.bias});
  call.transpose_b = request.transpose_b;
  return run(stream, call);
}

Result<Timepoint> ExpertOps::grouped_matmul_weight(Stream& stream,
                                                   const GroupedMatmulWeight& request) {
  return run(stream, make_op_call(OpKind::kGroupedMatmulWeight, request.label,
                                  {request.weight_grad}, {request.a, request.b, request.offsets}));
}

Result<Timepoint> ExpertOps::grouped_column_sum(Stream& stream, const GroupedColumnSum& request) {
  return run(stream, make_op_call(OpKind::kGroupedColumnSum, request.label, {request.out},
                                  {request.in, request.offsets}));
}

}  // namespace stagecoach
