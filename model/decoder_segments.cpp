#include "model/decoder_segments.h"

namespace stagecoach {

namespace {

SegmentIo rms_norm_io(const RmsNormSegment::Options& options) {
  SegmentIo io;
  io.reads = {options.in};
  io.writes = {options.rstd, options.out};
  io.saved_for_input = {options.in, options.rstd};
  io.saved_for_weight = io.saved_for_input;
  io.weight_uses = uses_of({options.weight});
  return io;
}

SegmentIo qk_norm_io(const QkNormSegment::Options& options) {
  SegmentIo io;
  io.reads = {options.in};
  io.writes = {options.rstd};
  options.rotation.declare(io);
  io.writes.push_back(options.out);
  io.saved_for_input = {options.in, options.rstd};
  io.saved_for_weight = io.saved_for_input;
  io.weight_uses = uses_of({options.q_weight, options.k_weight});
  return io;
}

template <typename Request>
void set_heads(Request& request, const HeadRotation& sizes) {
  request.heads = sizes.heads;
  request.kv_heads = sizes.kv_heads;
  request.head_dim = sizes.head_dim;
}

}  // namespace

RmsNormSegment::RmsNormSegment(std::string name, Options options)
    : BasicSegment(std::move(name), rms_norm_io(options)), options_(options) {}

SegmentFlop RmsNormSegment::flop(const MicroBatchShape& shape) const {
  auto price = [&](OpKind kind) { return elementwise_flop(kind, shape.rows(), options_.columns); };
  return {price(OpKind::kRmsNormForward), price(OpKind::kRmsNormBackwardInput),
          price(OpKind::kRmsNormBackwardWeight)};
}

Status RmsNormSegment::forward(SegmentRun& run) const {
  Ops::RmsNormForward request;
  request.out = run.activation(options_.out);
  request.rstd = as_vector(run.activation(options_.rstd));
  request.in = run.activation(options_.in);
  request.weight = parameter_of(run, options_.weight);
  request.epsilon = options_.epsilon;
  request.label = forward_label();
  return run.ops().rms_norm_forward(run.stream(), request).status();
}

Status RmsNormSegment::backward_input(SegmentRun& run) const {
  if (!run.wants_gradient(options_.in)) return Status::ok();
  Ops::RmsNormBackwardInput request;
  request.in_grad = run.gradient(options_.in);
  request.out_grad = run.gradient(options_.out);
  request.in = run.activation(options_.in);
  request.weight = parameter_of(run, options_.weight);
  request.rstd = as_vector(run.activation(options_.rstd));
  request.accumulate = run.gradient_accumulates(options_.in);
  request.label = input_label();
  return run.ops().rms_norm_backward_input(run.stream(), request).status();
}

Status RmsNormSegment::backward_weight(SegmentRun& run) const {
  Ops::RmsNormBackwardWeight request;
  request.weight_grad = gradient_of(run, options_.weight);
  request.out_grad = run.gradient(options_.out);
  request.in = run.activation(options_.in);
  request.rstd = as_vector(run.activation(options_.rstd));
  request.label = weight_label();
  return run.ops().rms_norm_backward_weight(run.stream(), request).status();
}

QkNormSegment::QkNormSegment(std::string name, Options options)
    : BasicSegment(std::move(name), qk_norm_io(options)), options_(options) {}

SegmentFlop QkNormSegment::flop(const MicroBatchShape& shape) const {
  const HeadRotation& sizes = options_.rotation;
  int64_t columns = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim;
  auto price = [&](OpKind kind) { return elementwise_flop(kind, shape.rows(), columns); };
  double rotation = sizes.flop(shape.rows());
  return {price(OpKind::kQkNormForward) + rotation, price(OpKind::kQkNormBackwardInput) + rotation,
          price(OpKind::kQkNormBackwardWeight)};
}

Status QkNormSegment::forward(SegmentRun& run) const {
  Ops::QkNormForward request;
  request.out = run.activation(options_.out);
  request.rstd = run.activation(options_.rstd);
  request.in = run.activation(options_.in);
  request.q_weight = parameter_of(run, options_.q_weight);
  request.k_weight = parameter_of(run, options_.k_weight);
  set_heads(request, options_.rotation);
  request.epsilon = options_.epsilon;
  request.label = forward_label();
  STAGECOACH_RETURN_IF_FAILED(run.ops().qk_norm_forward(run.stream(), request));
  return options_.rotation.turn(run, request.out, forward_label());
}

Status QkNormSegment::backward_input(SegmentRun& run) const {
  TensorView out_grad = run.gradient(options_.out);
  // For the weight part too, which comes after this one.
  STAGECOACH_RETURN_IF_ERROR(options_.rotation.turn_back(run, out_grad, input_label()));
  if (!run.wants_gradient(options_.in)) return Status::ok();
  STAGECOACH_RETURN_IF_ERROR(check_only_reader(run, options_.in));
  Ops::QkNormBackwardInput request;
  request.in_grad = run.gradient(options_.in);
  request.out_grad = out_grad;
  request.in = run.activation(options_.in);
  request.q_weight = parameter_of(run, options_.q_weight);
  request.k_weight = parameter_of(run, options_.k_weight);
  request.rstd = run.activation(options_.rstd);
  set_heads(request, options_.rotation);
  request.label = input_label();
  return run.ops().qk_norm_backward_input(run.stream(), request).status();
}

Status QkNormSegment::backward_weight(SegmentRun& run) const {
  Ops::QkNormBackwardWeight request;
  request.q_weight_grad = gradient_of(run, options_.q_weight);
  request.k_weight_grad = gradient_of(run, options_.k_weight);
  request.out_grad = run.gradient(options_.out);
  request.in = run.activation(options_.in);
  request.rstd = run.activation(options_.rstd);
  set_heads(request, options_.rotation);
  request.label = weight_label();
  return run.ops().qk_norm_backward_weight(run.stream(), request).status();
}

GatedSiluSegment::GatedSiluSegment(std::string name, Options options)
    : BasicSegment(std::move(name), {.reads = {options.in},
                                     .writes = {options.out},
                                     .saved_for_input = {options.in},
                                     .saved_for_weight = {},
                                     .scratch_gradients = {},
                                     .weightless = true}),
      options_(options) {}

SegmentFlop GatedSiluSegment::flop(const MicroBatchShape& shape) const {
  OpCall forward, backward;
  forward.kind = OpKind::kGatedSiluForward;
  backward.kind = OpKind::kGatedSiluBackward;
  forward.outputs[0].shape = backward.inputs[0].shape =
      Shape{shape.rows() * options_.count, options_.columns};
  return {op_flop(forward), op_flop(backward), 0};
}

Status GatedSiluSegment::forward(SegmentRun& run) const {
  Ops::GatedSiluForward request;
  request.out = as_rows(run.activation(options_.out), options_.columns);
  request.gate = as_rows(run.activation(options_.in), 2 * options_.columns);
  request.numbers = options_.numbers;
  request.label = forward_label();
  return run.ops().gated_silu_forward(run.stream(), request).status();
}

Status GatedSiluSegment::backward_input(SegmentRun& run) const {
  if (!run.wants_gradient(options_.in)) return Status::ok();
  STAGECOACH_RETURN_IF_ERROR(check_only_reader(run, options_.in));
  Ops::GatedSiluBackward request;
  request.gate_grad = as_rows(run.gradient(options_.in), 2 * options_.columns);
  request.out_grad = as_rows(run.gradient(options_.out), options_.columns);
  request.gate = as_rows(run.activation(options_.in), 2 * options_.columns);
  request.numbers = options_.numbers;
  request.label = input_label();
  return run.ops().gated_silu_backward(run.stream(), request).status();
}

}  // namespace stagecoach
