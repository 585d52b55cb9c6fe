#include "hal/ops.h"

#include "hal/device.h"
#include "hal/make_op_call.h"

namespace stagecoach {

namespace {

using internal::make_op_call;

/// The numbers both directions of attention share.
template <typename Request>
void set_attention(OpCall& call, const Request& request) {
  call.sequence = request.sequence;
  call.heads = request.heads;
  call.kv_heads = request.kv_heads;
  call.head_dim = request.head_dim;
  call.window = request.window;
  call.scale = request.scale;
  call.drop_probability = request.drop_probability;
  call.key = request.key;
}

}  // namespace

Result<Timepoint> Ops::run(Stream& stream, const OpCall& call) {
  STAGECOACH_RETURN_IF_ERROR(validate_op(call, stream.device()));
  STAGECOACH_ASSIGN_OR_RETURN(
      Timepoint timepoint,
      stream.submit(op_kind_name(call.kind), call.label, [&] { return do_run(stream, call); }));
  for (const TensorView& tensor : call.outputs) {
    if (!tensor.is_none()) tensor.memory.buffer->note_use(timepoint);
  }
  for (const TensorView& tensor : call.inputs) {
    if (!tensor.is_none()) tensor.memory.buffer->note_use(timepoint);
  }
  return timepoint;
}

Result<Timepoint> Ops::embedding_forward(Stream& stream, const EmbeddingForward& request) {
  OpCall call = make_op_call(OpKind::kEmbeddingForward, request.label, {request.out},
                             {request.ids, request.table, request.positions});
  call.sequence = request.sequence;
  return run(stream, call);
}

Result<Timepoint> Ops::embedding_backward(Stream& stream, const EmbeddingBackward& request) {
  OpCall call =
      make_op_call(OpKind::kEmbeddingBackward, request.label,
                   {request.table_grad, request.positions_grad}, {request.out_grad, request.ids});
  call.sequence = request.sequence;
  return run(stream, call);
}

Result<Timepoint> Ops::layer_norm_forward(Stream& stream, const LayerNormForward& request) {
  OpCall call = make_op_call(OpKind::kLayerNormForward, request.label,
                             {request.out, request.mean, request.rstd},
                             {request.in, request.weight, request.bias});
  call.epsilon = request.epsilon;
  return run(stream, call);
}

Result<Timepoint> Ops::layer_norm_backward_input(Stream& stream,
                                                 const LayerNormBackwardInput& request) {
  OpCall call =
      make_op_call(OpKind::kLayerNormBackwardInput, request.label, {request.in_grad},
                   {request.out_grad, request.in, request.weight, request.mean, request.rstd});
  call.accumulate = request.accumulate;
  return run(stream, call);
}

Result<Timepoint> Ops::layer_norm_backward_weight(Stream& stream,
                                                  const LayerNormBackwardWeight& request) {
  return run(stream, make_op_call(OpKind::kLayerNormBackwardWeight, request.label,
                                  {request.weight_grad, request.bias_grad},
                                  {request.out_grad, request.in, request.mean, request.rstd}));
}

Result<Timepoint> Ops::matmul(Stream& stream, const Matmul& request) {
  OpCall call = make_op_call(OpKind::kMatmul, request.label, {request.out},
                             {request.a, request.b, request.bias});
  call.transpose_a = request.transpose_a;
  call.transpose_b = request.transpose_b;
  call.accumulate = request.accumulate;
  return run(stream, call);
}

Result<Timepoint> Ops::column_sum(Stream& stream, const ColumnSum& request) {
  return run(stream, make_op_call(OpKind::kColumnSum, request.label, {request.out}, {request.in}));
}

Result<Timepoint> Ops::gelu_forward(Stream& stream, const GeluForward& request) {
  return run(stream,
             make_op_call(OpKind::kGeluForward, request.label, {request.out}, {request.in}));
}

Result<Timepoint> Ops::gelu_backward(Stream& stream, const GeluBackward& request) {
  OpCall call = make_op_call(OpKind::kGeluBackward, request.label, {request.in_grad},
                             {request.out_grad, request.in});
  call.accumulate = request.accumulate;
  return run(stream, call);
}

Result<Timepoint> Ops::attention_forward(Stream& stream, const AttentionForward& request) {
  OpCall call = make_op_call(OpKind::kAttentionForward, request.label, {request.out, request.lse},
                             {request.qkv, request.sinks, request.document_starts});
  set_attention(call, request);
  return run(stream, call);
}

Result<Timepoint> Ops::attention_backward(Stream& stream, const AttentionBackward& request) {
  OpCall call = make_op_call(OpKind::kAttentionBackward, request.label, {request.qkv_grad},
                             {request.out_grad, request.qkv, request.out, request.lse,
                              request.sinks, request.document_starts});
  set_attention(call, request);
  return run(stream, call);
}

Result<Timepoint> Ops::attention_sink_backward(Stream& stream,
                                               const AttentionSinkBackward& request) {
  OpCall call = make_op_call(OpKind::kAttentionSinkBackward, request.label, {request.sinks_grad},
                             {request.out_grad, request.out, request.lse, request.sinks});
  call.heads = call.kv_heads = request.heads;
  call.head_dim = request.head_dim;
  return run(stream, call);
}

Result<Timepoint> Ops::add(Stream& stream, const Add& request) {
  return run(stream,
             make_op_call(OpKind::kAdd, request.label, {request.out}, {request.a, request.b}));
}

Result<Timepoint> Ops::multiply(Stream& stream, const Multiply& request) {
  OpCall call =
      make_op_call(OpKind::kMultiply, request.label, {request.out}, {request.a, request.b});
  call.accumulate = request.accumulate;
  return run(stream, call);
}

Result<Timepoint> Ops::dropout(Stream& stream, const Dropout& request) {
  OpCall call =
      make_op_call(OpKind::kDropout, request.label, {request.out}, {request.in, request.residual});
  call.drop_probability = request.drop_probability;
  call.key = request.key;
  call.accumulate = request.accumulate;
  return run(stream, call);
}

Result<Timepoint> Ops::linear_cross_entropy_forward(Stream& stream,
                                                    const LinearCrossEntropyForward& request) {
  OpCall call =
      make_op_call(OpKind::kLinearCrossEntropyForward, request.label, {request.loss, request.lse},
                   {request.hidden, request.weight, request.labels});
  call.loss_terms = request.terms;
  return run(stream, call);
}

Result<Timepoint> Ops::linear_cross_entropy_backward_input(
    Stream& stream, const LinearCrossEntropyBackwardInput& request) {
  OpCall call =
      make_op_call(OpKind::kLinearCrossEntropyBackwardInput, request.label, {request.hidden_grad},
                   {request.hidden, request.weight, request.labels, request.lse});
  call.loss_terms = request.terms;
  call.scale = request.scale;
  call.accumulate = request.accumulate;
  return run(stream, call);
}

Result<Timepoint> Ops::linear_cross_entropy_backward_weight(
    Stream& stream, const LinearCrossEntropyBackwardWeight& request) {
  OpCall call =
      make_op_call(OpKind::kLinearCrossEntropyBackwardWeight, request.label, {request.weight_grad},
                   {request.hidden, request.weight, request.labels, request.lse});
  call.loss_terms = request.terms;
  call.scale = request.scale;
  return run(stream, call);
}

Result<Timepoint> Ops::squared_error_forward(Stream& stream, const SquaredErrorForward& request) {
  return run(stream, make_op_call(OpKind::kSquaredErrorForward, request.label, {request.loss},
                                  {request.prediction, request.target}));
}

Result<Timepoint> Ops::squared_error_backward(Stream& stream, const SquaredErrorBackward& request) {
  OpCall call = make_op_call(OpKind::kSquaredErrorBackward, request.label,
                             {request.prediction_grad}, {request.prediction, request.target});
  call.scale = request.scale;
  call.accumulate = request.accumulate;
  return run(stream, call);
}

Result<Timepoint> Ops::accumulate(Stream& stream, const Accumulate& request) {
  return run(stream, make_op_call(OpKind::kAccumulate, request.label, {request.out}, {request.in}));
}

Result<Timepoint> Ops::convert(Stream& stream, const Convert& request) {
  return run(stream, make_op_call(OpKind::kConvert, request.label, {request.out}, {request.in}));
}

Result<Timepoint> Ops::sum_of_squares(Stream& stream, const SumOfSquares& request) {
  return run(stream,
             make_op_call(OpKind::kSumOfSquares, request.label, {request.out}, {request.in}));
}

Result<Timepoint> Ops::checksum(Stream& stream, const Checksum& request) {
  return run(stream, make_op_call(OpKind::kChecksum, request.label, {request.out}, {request.in}));
}

Result<Timepoint> Ops::finite_check(Stream& stream, const FiniteCheck& request) {
  return run(stream,
             make_op_call(OpKind::kFiniteCheck, request.label, {request.out}, {request.in}));
}

}  // namespace stagecoach
