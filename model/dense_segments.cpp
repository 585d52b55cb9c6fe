#include "model/dense_segments.h"

#include <utility>

namespace stagecoach {

namespace {

SegmentIo layer_norm_io(const LayerNormSegment::Options& options) {
  SegmentIo io;
  io.reads = {options.in};
  io.writes = {options.mean, options.rstd, options.out};
  io.saved_for_input = {options.in, options.mean, options.rstd};
  io.saved_for_weight = io.saved_for_input;
  io.weight_uses = uses_of({options.weight, options.bias});
  return io;
}

SegmentIo linear_io(const LinearSegment::Options& options) {
  SegmentIo io;
  io.reads = {options.in};
  if (options.residual >= 0) io.reads.push_back(options.residual);
  if (options.drop_probability > 0) {
    // The product exists apart from the output only where something is dropped from it.
    io.writes = {options.product};
    io.scratch_gradients = {options.product};
  }
  if (options.rotation) options.rotation->declare(io);
  io.saved_for_weight = {options.in};
  io.weight_uses = uses_of({options.weight, options.bias});
  if (options.adapter) options.adapter->declare(io);
  io.writes.push_back(options.out);
  return io;
}

}  // namespace

LayerNormSegment::LayerNormSegment(std::string name, Options options)
    : BasicSegment(std::move(name), layer_norm_io(options)), options_(options) {}

SegmentFlop LayerNormSegment::flop(const MicroBatchShape& shape) const {
  auto price = [&](OpKind kind) { return elementwise_flop(kind, shape.rows(), options_.columns); };
  return {price(OpKind::kLayerNormForward), price(OpKind::kLayerNormBackwardInput),
          price(OpKind::kLayerNormBackwardWeight)};
}

Status LayerNormSegment::forward(SegmentRun& run) const {
  Ops::LayerNormForward request;
  request.out = run.activation(options_.out);
  request.mean = as_vector(run.activation(options_.mean));
  request.rstd = as_vector(run.activation(options_.rstd));
  request.in = run.activation(options_.in);
  request.weight = parameter_of(run, options_.weight);
  request.bias = parameter_of(run, options_.bias);
  request.epsilon = options_.epsilon;
  request.label = forward_label();
  return run.ops().layer_norm_forward(run.stream(), request).status();
}

Status LayerNormSegment::backward_input(SegmentRun& run) const {
  if (!run.wants_gradient(options_.in)) return Status::ok();
  Ops::LayerNormBackwardInput request;
  request.in_grad = run.gradient(options_.in);
  request.out_grad = run.gradient(options_.out);
  request.in = run.activation(options_.in);
  request.weight = parameter_of(run, options_.weight);
  request.mean = as_vector(run.activation(options_.mean));
  request.rstd = as_vector(run.activation(options_.rstd));
  request.accumulate = run.gradient_accumulates(options_.in);
  request.label = input_label();
  return run.ops().layer_norm_backward_input(run.stream(), request).status();
}

Status LayerNormSegment::backward_weight(SegmentRun& run) const {
  Ops::LayerNormBackwardWeight request;
  request.weight_grad = gradient_of(run, options_.weight);
  request.bias_grad = gradient_of(run, options_.bias);
  request.out_grad = run.gradient(options_.out);
  request.in = run.activation(options_.in);
  request.mean = as_vector(run.activation(options_.mean));
  request.rstd = as_vector(run.activation(options_.rstd));
  request.label = weight_label();
  return run.ops().layer_norm_backward_weight(run.stream(), request).status();
}

LinearSegment::LinearSegment(std::string name, Options options)
    : BasicSegment(std::move(name), linear_io(options)), options_(options) {}

SegmentFlop LinearSegment::flop(const MicroBatchShape& shape) const {
  int64_t rows = shape.rows();
  int64_t out = options_.out_columns;
  double product = matmul_flop(rows, out, options_.in_columns);
  SegmentFlop flop{product, product, product};
  if (has_dropout()) {
    double dropout = elementwise_flop(OpKind::kDropout, rows, out, options_.drop_probability);
    flop.forward += dropout;
    flop.backward_input += dropout;
  } else if (has_residual()) {
    flop.forward += elementwise_flop(OpKind::kConvert, rows, out);
  }
  if (has_residual()) flop.backward_input += elementwise_flop(OpKind::kAdd, rows, out);
  if (options_.rotation) {
    flop.forward += options_.rotation->flop(rows);
    flop.backward_input += options_.rotation->flop(rows);
  }
  if (!options_.bias.is_none()) {
    flop.backward_weight += elementwise_flop(OpKind::kColumnSum, rows, out);
  }
  if (!options_.adapter) return flop;
  // Beside adapters the product's own matrix is frozen.
  double adapters = options_.adapter->flop(rows);
  flop.forward += adapters;
  flop.backward_input += adapters;
  flop.backward_weight = options_.adapter->weight_flop(rows);
  return flop;
}

float LinearSegment::drop_probability(const SegmentRun& run) const {
  return run.training() ? options_.drop_probability : 0.0f;
}

Shape LinearSegment::weight_shape() const {
  if (options_.is_transposed) return {options_.out_columns, options_.in_columns};
  return {options_.in_columns, options_.out_columns};
}

Status LinearSegment::multiply(SegmentRun& run, const TensorView& out, bool accumulate) const {
  Ops::Matmul request{};
  request.out = out;
  request.a = run.activation(options_.in);
  request.b = as_joined(parameter_of(run, options_.weight), weight_shape());
  request.bias = as_joined(parameter_of(run, options_.bias), Shape{options_.out_columns});
  request.transpose_b = options_.is_transposed;
  request.accumulate = accumulate;
  request.label = forward_label();
  STAGECOACH_RETURN_IF_FAILED(run.ops().matmul(run.stream(), request));
  if (!options_.adapter) return Status::ok();
  return options_.adapter->forward(run, request.a, out, forward_label());
}

Status LinearSegment::forward(SegmentRun& run) const {
  TensorView out = run.activation(options_.out);
  TensorView residual = has_residual() ? run.activation(options_.residual) : TensorView{};
  if (drop_probability(run) > 0) {
    TensorView product = run.activation(options_.product);
    STAGECOACH_RETURN_IF_ERROR(multiply(run, product, false));
    Ops::Dropout request{};
    request.out = out;
    request.in = product;
    request.residual = residual;
    request.drop_probability = drop_probability(run);
    request.key = run.key(options_.site);
    request.label = forward_label();
    return run.ops().dropout(run.stream(), request).status();
  }
  if (has_residual()) {
    STAGECOACH_RETURN_IF_FAILED(run.ops().convert(run.stream(), {out, residual, forward_label()}));
  }
  STAGECOACH_RETURN_IF_ERROR(multiply(run, out, has_residual()));
  if (!options_.rotation) return Status::ok();
  return options_.rotation->turn(run, out, forward_label());
}

Status LinearSegment::backward_input(SegmentRun& run) const {
  TensorView out_grad = run.gradient(options_.out);
  if (options_.rotation) {
    STAGECOACH_RETURN_IF_ERROR(options_.rotation->turn_back(run, out_grad, input_label()));
  }
  if (has_dropout()) {
    Ops::Dropout request{};
    request.out = run.gradient(options_.product);
    request.in = out_grad;
    request.drop_probability = drop_probability(run);
    request.key = run.key(options_.site);
    request.label = input_label();
    STAGECOACH_RETURN_IF_FAILED(run.ops().dropout(run.stream(), request));
  }
  if (has_residual()) {
    STAGECOACH_RETURN_IF_ERROR(pass_gradient(run, options_.residual, out_grad));
  }
  TensorView in_grad;
  if (run.wants_gradient(options_.in)) {
    Ops::Matmul request{};
    request.out = in_grad = run.gradient(options_.in);
    request.a = run.gradient(product_gradient());
    request.b = as_joined(parameter_of(run, options_.weight), weight_shape());
    request.transpose_b = !options_.is_transposed;
    request.accumulate = run.gradient_accumulates(options_.in);
    request.label = input_label();
    STAGECOACH_RETURN_IF_FAILED(run.ops().matmul(run.stream(), request));
  }
  if (!options_.adapter) return Status::ok();
  // Also where nobody wants it: the weight part needs the inner gradient.
  return options_.adapter->backward_input(run, run.gradient(product_gradient()), in_grad,
                                          input_label());
}

Status LinearSegment::backward_weight(SegmentRun& run) const {
  TensorView product_grad = run.gradient(product_gradient());
  if (options_.adapter) {
    STAGECOACH_RETURN_IF_ERROR(options_.adapter->backward_weight(run, run.activation(options_.in),
                                                                 product_grad, weight_label()));
  }
  return add_weight_gradients(run, product_grad);
}

Status LinearSegment::add_weight_gradients(SegmentRun& run, const TensorView& product_grad) const {
  Ops::Matmul request{};
  request.out = as_joined(gradient_of(run, options_.weight), weight_shape());
  if (request.out.is_none()) return Status::ok();  // frozen
  request.a = run.activation(options_.in);
  request.b = product_grad;
  if (options_.is_transposed) std::swap(request.a, request.b);
  request.transpose_a = true;
  request.accumulate = true;
  request.label = weight_label();
  STAGECOACH_RETURN_IF_FAILED(run.ops().matmul(run.stream(), request));
  if (options_.bias.is_none()) return Status::ok();
  TensorView bias_grad = as_joined(gradient_of(run, options_.bias), Shape{options_.out_columns});
  return run.ops().column_sum(run.stream(), {bias_grad, product_grad, weight_label()}).status();
}

GeluSegment::GeluSegment(std::string name, Options options)
    : BasicSegment(std::move(name), {.reads = {options.in},
                                     .writes = {options.out},
                                     .saved_for_input = {options.in},
                                     .saved_for_weight = {},
                                     .scratch_gradients = {},
                                     .weightless = true}),
      options_(options) {}

SegmentFlop GeluSegment::flop(const MicroBatchShape& shape) const {
  return {elementwise_flop(OpKind::kGeluForward, shape.rows(), options_.columns),
          elementwise_flop(OpKind::kGeluBackward, shape.rows(), options_.columns), 0};
}

Status GeluSegment::forward(SegmentRun& run) const {
  return run.ops()
      .gelu_forward(run.stream(),
                    {run.activation(options_.out), run.activation(options_.in), forward_label()})
      .status();
}

Status GeluSegment::backward_input(SegmentRun& run) const {
  if (!run.wants_gradient(options_.in)) return Status::ok();
  Ops::GeluBackward request{};
  request.in_grad = run.gradient(options_.in);
  request.out_grad = run.gradient(options_.out);
  request.in = run.activation(options_.in);
  request.accumulate = run.gradient_accumulates(options_.in);
  request.label = input_label();
  return run.ops().gelu_backward(run.stream(), request).status();
}

}  // namespace stagecoach
