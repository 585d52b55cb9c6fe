#include "model/attention_segment.h"

#include <cmath>

namespace stagecoach {

AttentionSegment::AttentionSegment(std::string name, Options options)
    : BasicSegment(std::move(name), {.reads = {options.qkv},
                                     .writes = {options.lse, options.out},
                                     .saved_for_input = {options.qkv, options.lse, options.out},
                                     .saved_for_weight = {},
                                     .scratch_gradients = {},
                                     .weightless = true}),
      options_(options) {}

float AttentionSegment::scale() const {
  return 1.0f / std::sqrt(static_cast<float>(options_.head_dim));
}

SegmentFlop AttentionSegment::flop(const MicroBatchShape& shape) const {
  auto price = [&](OpKind kind) {
    OpCall call;
    call.kind = kind;
    call.inputs[0].shape = Shape{shape.rows(), qkv_columns()};
    call.sequence = shape.sequence;
    call.heads = options_.heads;
    call.kv_heads = options_.kv_heads;
    call.head_dim = options_.head_dim;
    return op_flop(call);
  };
  return {price(OpKind::kAttentionForward), price(OpKind::kAttentionBackward), 0};
}

Status AttentionSegment::forward(SegmentRun& run) const {
  Ops::AttentionForward request{};
  request.out = run.activation(options_.out);
  request.lse = run.activation(options_.lse);
  request.qkv = run.activation(options_.qkv);
  request.sequence = run.shape().sequence;
  request.heads = options_.heads;
  request.kv_heads = options_.kv_heads;
  request.head_dim = options_.head_dim;
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
  request.sequence = run.shape().sequence;
  request.heads = options_.heads;
  request.kv_heads = options_.kv_heads;
  request.head_dim = options_.head_dim;
  request.scale = scale();
  request.drop_probability = drop_probability(run);
  request.key = run.key(options_.site);
  request.label = input_label();
  return run.ops().attention_backward(run.stream(), request).status();
}

}  // namespace stagecoach
