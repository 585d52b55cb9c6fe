#include "model/token_segments.h"

namespace stagecoach {

namespace {

double cross_entropy_flop(OpKind kind, int64_t rows, int64_t columns, int64_t vocabulary) {
  OpCall call;
  call.kind = kind;
  call.inputs[0].shape = Shape{rows, columns};
  call.inputs[1].shape = Shape{vocabulary, columns};
  return op_flop(call);
}

std::vector<int> ids_activation(const EmbeddingSegment::Options& options) {
  if (options.ids == EmbeddingSegment::Options::kRowPositions) return {};
  return {options.ids};
}

}  // namespace

EmbeddingSegment::EmbeddingSegment(std::string name, Options options)
    : BasicSegment(std::move(name), {.reads = ids_activation(options),
                                     .writes = {options.out},
                                     .saved_for_input = {},
                                     .saved_for_weight = ids_activation(options),
                                     .scratch_gradients = {},
                                     .weight_uses = uses_of({options.table, options.positions}),
                                     .row_inputs = options.ids == Options::kRowPositions
                                                       ? std::vector<RowInput>{RowInput::kPositions}
                                                       : std::vector<RowInput>{}}),
      options_(options) {}

TensorView EmbeddingSegment::ids(SegmentRun& run) const {
  return as_vector(options_.ids == Options::kRowPositions ? run.row_input(RowInput::kPositions)
                                                          : run.activation(options_.ids));
}

SegmentFlop EmbeddingSegment::flop(const MicroBatchShape& shape) const {
  int64_t rows = shape.rows();
  return {elementwise_flop(OpKind::kEmbeddingForward, rows, options_.columns), 0,
          elementwise_flop(OpKind::kEmbeddingBackward, rows, options_.columns)};
}

Status EmbeddingSegment::forward(SegmentRun& run) const {
  Ops::EmbeddingForward request;
  request.out = run.activation(options_.out);
  request.ids = ids(run);
  request.table = parameter_of(run, options_.table);
  request.positions = parameter_of(run, options_.positions);
  request.sequence = run.shape().sequence;
  request.label = forward_label();
  return run.ops().embedding_forward(run.stream(), request).status();
}

Status EmbeddingSegment::backward_input(SegmentRun& run) const {
  return Status::ok();  // ids have no gradient
}

Status EmbeddingSegment::backward_weight(SegmentRun& run) const {
  Ops::EmbeddingBackward request;
  request.table_grad = gradient_of(run, options_.table);
  request.positions_grad = gradient_of(run, options_.positions);
  request.out_grad = run.gradient(options_.out);
  request.ids = ids(run);
  request.sequence = run.shape().sequence;
  request.label = weight_label();
  return run.ops().embedding_backward(run.stream(), request).status();
}

LinearCrossEntropySegment::LinearCrossEntropySegment(std::string name, Options options)
    : BasicSegment(std::move(name), {.reads = {options.hidden},
                                     .writes = {options.lse, options.loss},
                                     .saved_for_input = {options.hidden, options.lse},
                                     .saved_for_weight = {options.hidden, options.lse},
                                     .scratch_gradients = {},
                                     .weight_uses = uses_of({options.weight}),
                                     .row_inputs = {RowInput::kLabels}}),
      options_(options) {}

SegmentFlop LinearCrossEntropySegment::flop(const MicroBatchShape& shape) const {
  auto price = [&](OpKind kind) {
    return cross_entropy_flop(kind, shape.rows(), options_.columns, options_.vocabulary);
  };
  return {price(OpKind::kLinearCrossEntropyForward),
          price(OpKind::kLinearCrossEntropyBackwardInput),
          price(OpKind::kLinearCrossEntropyBackwardWeight)};
}

Status LinearCrossEntropySegment::forward(SegmentRun& run) const {
  Ops::LinearCrossEntropyForward request;
  request.loss = as_vector(run.activation(options_.loss));
  request.lse = as_vector(run.activation(options_.lse));
  request.hidden = run.activation(options_.hidden);
  request.weight = parameter_of(run, options_.weight);
  request.labels = as_vector(run.row_input(RowInput::kLabels));
  request.terms = run.loss_terms();
  request.label = forward_label();
  return run.ops().linear_cross_entropy_forward(run.stream(), request).status();
}

Status LinearCrossEntropySegment::backward_input(SegmentRun& run) const {
  if (!run.wants_gradient(options_.hidden)) return Status::ok();
  Ops::LinearCrossEntropyBackwardInput request;
  request.hidden_grad = run.gradient(options_.hidden);
  request.hidden = run.activation(options_.hidden);
  request.weight = parameter_of(run, options_.weight);
  request.labels = as_vector(run.row_input(RowInput::kLabels));
  request.lse = as_vector(run.activation(options_.lse));
  request.terms = run.loss_terms();
  request.scale = run.loss_scale();
  request.accumulate = run.gradient_accumulates(options_.hidden);
  request.label = input_label();
  return run.ops().linear_cross_entropy_backward_input(run.stream(), request).status();
}

Status LinearCrossEntropySegment::backward_weight(SegmentRun& run) const {
  Ops::LinearCrossEntropyBackwardWeight request;
  request.weight_grad = gradient_of(run, options_.weight);
  request.hidden = run.activation(options_.hidden);
  request.weight = parameter_of(run, options_.weight);
  request.labels = as_vector(run.row_input(RowInput::kLabels));
  request.lse = as_vector(run.activation(options_.lse));
  request.terms = run.loss_terms();
  request.scale = run.loss_scale();
  request.label = weight_label();
  return run.ops().linear_cross_entropy_backward_weight(run.stream(), request).status();
}

LinearLogitsSegment::LinearLogitsSegment(std::string name, Options options)
    : BasicSegment(std::move(name), {.reads = {options.hidden},
                                     .writes = {options.logits},
                                     .saved_for_input = {},
                                     .saved_for_weight = {},
                                     .scratch_gradients = {},
                                     .weightless = true}),
      options_(options) {}

SegmentFlop LinearLogitsSegment::flop(const MicroBatchShape& shape) const {
  return {matmul_flop(shape.rows(), options_.vocabulary, options_.columns), 0, 0};
}

Status LinearLogitsSegment::forward(SegmentRun& run) const {
  Ops::Matmul request{};
  request.out = run.activation(options_.logits);
  request.a = run.activation(options_.hidden);
  request.b = parameter_of(run, options_.weight);
  request.transpose_b = true;
  request.label = forward_label();
  return run.ops().matmul(run.stream(), request).status();
}

Status LinearLogitsSegment::backward_input(SegmentRun& run) const {
  return unimplemented("logits are for generation: '" + std::string(name()) +
                       "' has no backward pass");
}

}  // namespace stagecoach
