#include "model/elementwise_segments.h"

namespace stagecoach {

namespace {

SegmentIo weightless_io(std::vector<int> reads, int write, std::vector<int> saved) {
  SegmentIo io;
  io.reads = std::move(reads);
  io.writes = {write};
  io.saved_for_input = std::move(saved);
  io.weightless = true;
  return io;
}

}  // namespace

DropoutSegment::DropoutSegment(std::string name, Options options)
    : BasicSegment(std::move(name), weightless_io({options.in}, options.out, {})),
      options_(options) {}

SegmentFlop DropoutSegment::flop(const MicroBatchShape& shape) const {
  double price =
      elementwise_flop(OpKind::kDropout, shape.rows(), options_.columns, options_.drop_probability);
  return {price, price, 0};
}

Status DropoutSegment::forward(SegmentRun& run) const {
  Ops::Dropout request{};
  request.out = run.activation(options_.out);
  request.in = run.activation(options_.in);
  request.drop_probability = drop_probability(run);
  request.key = run.key(options_.site);
  request.label = forward_label();
  return run.ops().dropout(run.stream(), request).status();
}

Status DropoutSegment::backward_input(SegmentRun& run) const {
  if (!run.wants_gradient(options_.in)) return Status::ok();
  Ops::Dropout request{};
  request.out = run.gradient(options_.in);
  request.in = run.gradient(options_.out);
  request.drop_probability = drop_probability(run);
  request.key = run.key(options_.site);
  request.accumulate = run.gradient_accumulates(options_.in);
  request.label = input_label();
  return run.ops().dropout(run.stream(), request).status();
}

AddSegment::AddSegment(std::string name, Options options)
    : BasicSegment(std::move(name), weightless_io({options.a, options.b}, options.out, {})),
      options_(options) {}

SegmentFlop AddSegment::flop(const MicroBatchShape& shape) const {
  double price = elementwise_flop(OpKind::kAdd, shape.rows(), options_.columns);
  return {price, 2 * price, 0};
}

Status AddSegment::forward(SegmentRun& run) const {
  return run.ops()
      .add(run.stream(), {run.activation(options_.out), run.activation(options_.a),
                          run.activation(options_.b), forward_label()})
      .status();
}

Status AddSegment::backward_input(SegmentRun& run) const {
  TensorView out_grad = run.gradient(options_.out);
  STAGECOACH_RETURN_IF_ERROR(pass_gradient(run, options_.a, out_grad));
  return pass_gradient(run, options_.b, out_grad);
}

namespace {

SegmentIo squared_error_io(const SquaredErrorSegment::Options& options) {
  SegmentIo io = weightless_io({options.prediction}, options.loss, {options.prediction});
  io.row_inputs = {RowInput::kLabels};
  return io;
}

}  // namespace

SquaredErrorSegment::SquaredErrorSegment(std::string name, Options options)
    : BasicSegment(std::move(name), squared_error_io(options)), options_(options) {}

SegmentFlop SquaredErrorSegment::flop(const MicroBatchShape& shape) const {
  return {elementwise_flop(OpKind::kSquaredErrorForward, shape.rows(), options_.columns),
          elementwise_flop(OpKind::kSquaredErrorBackward, shape.rows(), options_.columns), 0};
}

Status SquaredErrorSegment::forward(SegmentRun& run) const {
  Ops::SquaredErrorForward request{};
  request.loss = as_vector(run.activation(options_.loss));
  request.prediction = run.activation(options_.prediction);
  request.target = run.row_input(RowInput::kLabels);
  request.label = forward_label();
  return run.ops().squared_error_forward(run.stream(), request).status();
}

Status SquaredErrorSegment::backward_input(SegmentRun& run) const {
  if (!run.wants_gradient(options_.prediction)) return Status::ok();
  Ops::SquaredErrorBackward request{};
  request.prediction_grad = run.gradient(options_.prediction);
  request.prediction = run.activation(options_.prediction);
  request.target = run.row_input(RowInput::kLabels);
  request.scale = run.loss_scale();
  request.accumulate = run.gradient_accumulates(options_.prediction);
  request.label = input_label();
  return run.ops().squared_error_backward(run.stream(), request).status();
}

}  // namespace stagecoach
