#include "model/attention_segment.h"

#include <cmath>

namespace stagecoach {

AttentionSegment::AttentionSegment(std::string name, Options options)
    : BasicSegment(
          std::move(name),
          {.reads = {options.qkv},
           .writes = {options.lse, options.out},
           .saved_for_input = {options.qkv, options.lse, options.out},
           .saved_for_weight = options.sinks.is_none() ? std::vector<int>{}
                                                       : std::vector<int>{options.lse, options.out},
           .scratch_gradients = {},
           .weightless = options.sinks.is_none(),
           .weight_uses = uses_of({options.sinks}),
           .row_inputs = options.has_documents ? std::vector<RowInput>{RowInput::kDocumentStarts}
                                               : std::vector<RowInput>{}}),
      options_(options) {}

float AttentionSegment::scale() const {
  return 1.0f / std::sqrt(static_cast<float>(options_.head_dim));
}

TensorView AttentionSegment::document_starts(SegmentRun& run) const {
  return options_.has_documents ? as_vector(run.row_input(RowInput::kDocumentStarts))
                                : TensorView{};
}

SegmentFlop AttentionSegment::flop(const MicroBatchShape& shape) const {
  auto price = [&](OpKind kind, int64_t columns) {
    OpCall call;
    call.kind = kind;
    call.inputs[0].shape = Shape{shape.rows(), columns};
    call.sequence = shape.sequence;
    call.heads = options_.heads;
    call.kv_heads = options_.kv_heads;
    call.head_dim = options_.head_dim;
    call.window = options_.window;
    return op_flop(call);
  };
  int64_t out_columns = options_.heads * options_.head_dim;
  return {price(OpKind::kAttentionForward, qkv_columns()),
          price(OpKind::kAttentionBackward, qkv_columns()),
          options_.sinks.is_none() ? 0 : price(OpKind::kAttentionSinkBackward, out_columns)};
}

Status AttentionSegment::forward(SegmentRun& run) const {
  Ops::AttentionForward request{};
  request.out = run.activation(options_.out);
  request.lse = run.activation(options_.lse);
  request.qkv = run.activation(options_.qkv);
  request.sinks = parameter_of(run, options_.sinks);
  request.document_starts = document_starts(run);
  request.sequence = run.shape().sequence;
  request.heads = options_.heads;
  request.kv_heads = options_.kv_heads;
  request.head_dim = options_.head_dim;
  request.window = options_.window;
  request.scale = scale();
  request.drop_probability = drop_probability(run);
  request.key = run.key(options_.site);
  request.label = forward_label();
  return run.ops().attention_forward(run.stream(), request).status();
}

Status AttentionSegment::backward_input(SegmentRun& run) const {
  if (!run.wants_gradient(options_.qkv)) return Status::ok();
  STAGECOACH_RETURN_IF_ERROR(check_only_reader(run, options_.qkv));
  Ops::AttentionBackward request{};
  request.qkv_grad = run.gradient(options_.qkv);
  request.out_grad = run.gradient(options_.out);
  request.qkv = run.activation(options_.qkv);
  request.out = run.activation(options_.out);
  request.lse = run.activation(options_.lse);
  request.sinks = parameter_of(run, options_.sinks);
  request.document_starts = document_starts(run);
  request.sequence = run.shape().sequence;
  request.heads = options_.heads;
  request.kv_heads = options_.kv_heads;
  request.head_dim = options_.head_dim;
  request.window = options_.window;
  request.scale = scale();
  request.drop_probability = drop_probability(run);
  request.key = run.key(options_.site);
  request.label = input_label();
  return run.ops().attention_backward(run.stream(), request).status();
}

Status AttentionSegment::backward_weight(SegmentRun& run) const {
  TensorView sinks_grad = gradient_of(run, options_.sinks);
  if (sinks_grad.is_none()) return Status::ok();
  Ops::AttentionSinkBackward request{};
  request.sinks_grad = sinks_grad;
  request.out_grad = run.gradient(options_.out);
  request.out = run.activation(options_.out);
  request.lse = run.activation(options_.lse);
  request.sinks = parameter_of(run, options_.sinks);
  request.heads = options_.heads;
  request.head_dim = options_.head_dim;
  request.label = weight_label();
  return run.ops().attention_sink_backward(run.stream(), request).status();
}

}  // namespace stagecoach
