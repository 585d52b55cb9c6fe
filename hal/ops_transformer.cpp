#include "hal/make_op_call.h"
#include "hal/ops.h"

namespace stagecoach {

namespace {

using internal::make_op_call;

template <typename Request>
void set_heads(OpCall& call, const Request& request) {
  call.heads = request.heads;
  call.kv_heads = request.kv_heads;
  call.head_dim = request.head_dim;
}

}  // namespace

Result<Timepoint> Ops::rms_norm_forward(Stream& stream, const RmsNormForward& request) {
  OpCall call = make_op_call(OpKind::kRmsNormForward, request.label,
                             {request.out, request.rstd, request.sum_out},
                             {request.in, request.weight, request.residual});
  call.epsilon = request.epsilon;
  return run(stream, call);
}

Result<Timepoint> Ops::rms_norm_backward_input(Stream& stream,
                                               const RmsNormBackwardInput& request) {
  OpCall call = make_op_call(OpKind::kRmsNormBackwardInput, request.label, {request.in_grad},
                             {request.out_grad, request.in, request.weight, request.rstd});
  call.accumulate = request.accumulate;
  return run(stream, call);
}

Result<Timepoint> Ops::rms_norm_backward_weight(Stream& stream,
                                                const RmsNormBackwardWeight& request) {
  return run(stream,
             make_op_call(OpKind::kRmsNormBackwardWeight, request.label, {request.weight_grad},
                          {request.out_grad, request.in, request.rstd}));
}

Result<Timepoint> Ops::rotary(Stream& stream, const Rotary& request) {
  OpCall call =
      make_op_call(OpKind::kRotary, request.label, {request.qkv}, {request.cosines, request.sines});
  set_heads(call, request);
  call.sequence = request.sequence;
  call.inverse = request.inverse;
  return run(stream, call);
}

Result<Timepoint> Ops::qk_norm_forward(Stream& stream, const QkNormForward& request) {
  OpCall call = make_op_call(OpKind::kQkNormForward, request.label, {request.out, request.rstd},
                             {request.in, request.q_weight, request.k_weight});
  set_heads(call, request);
  call.epsilon = request.epsilon;
  return run(stream, call);
}

Result<Timepoint> Ops::qk_norm_backward_input(Stream& stream, const QkNormBackwardInput& request) {
  OpCall call = make_op_call(
      OpKind::kQkNormBackwardInput, request.label, {request.in_grad},
      {request.out_grad, request.in, request.q_weight, request.k_weight, request.rstd});
  set_heads(call, request);
  return run(stream, call);
}

Result<Timepoint> Ops::qk_norm_backward_weight(Stream& stream,
                                               const QkNormBackwardWeight& request) {
  OpCall call = make_op_call(OpKind::kQkNormBackwardWeight, request.label,
                             {request.q_weight_grad, request.k_weight_grad},
                             {request.out_grad, request.in, request.rstd});
  set_heads(call, request);
  return run(stream, call);
}

Result<Timepoint> Ops::gated_silu_forward(Stream& stream, const GatedSiluForward& request) {
  OpCall call = make_op_call(OpKind::kGatedSiluForward, request.label, {request.out},
                             {request.gate, request.up});
  call.gated = request.numbers;
  return run(stream, call);
}

Result<Timepoint> Ops::gated_silu_backward(Stream& stream, const GatedSiluBackward& request) {
  OpCall call =
      make_op_call(OpKind::kGatedSiluBackward, request.label, {request.gate_grad, request.up_grad},
                   {request.out_grad, request.gate, request.up});
  call.gated = request.numbers;
  return run(stream, call);
}

Result<Timepoint> Ops::adamw(Stream& stream, const AdamW& request) {
  OpCall call = make_op_call(OpKind::kAdamW, request.label,
                             {request.parameters, request.first_moment, request.second_moment},
                             {request.gradient});
  call.adamw = request.numbers;
  call.epsilon = request.epsilon;
  call.scale = request.gradient_scale;
  return run(stream, call);
}

Result<Timepoint> Ops::join_master(Stream& stream, const JoinMaster& request) {
  return run(stream, make_op_call(OpKind::kJoinMaster, request.label, {request.out},
                                  {request.high, request.remainder}));
}

Result<Timepoint> Ops::split_master(Stream& stream, const SplitMaster& request) {
  return run(stream, make_op_call(OpKind::kSplitMaster, request.label,
                                  {request.high, request.remainder}, {request.in}));
}

}  // namespace stagecoach
