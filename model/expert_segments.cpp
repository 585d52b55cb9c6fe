#include "model/expert_segments.h"

#include <utility>

namespace stagecoach {

namespace {

/// With what the segment writes: its scratch, whose gradient the backward pass fills, and output.
template <typename Options>
SegmentIo with_writes(SegmentIo io, const Options& options, int residual, int scratch) {
  if (residual >= 0) io.reads.push_back(residual);
  io.writes = {scratch, options.out};
  io.scratch_gradients = {scratch};
  io.weight_uses = uses_of({options.weight, options.bias});
  return io;
}

/// a[N, C]^T b[N, O] of a matrix [E, C, O], or the other way round.
template <typename Options>
Status add_weight_gradients(SegmentRun& run, const Options& options, const TensorView& in,
                            const TensorView& product_grad, const Label& label) {
  TensorView offsets = as_vector(run.activation(options.choice.offsets));
  Ops::GroupedMatmulWeight request;
  request.weight_grad = gradient_of(run, options.weight);
  request.a = in;
  request.b = product_grad;
  if (options.is_transposed) std::swap(request.a, request.b);
  request.offsets = offsets;
  request.label = label;
  STAGECOACH_RETURN_IF_FAILED(run.ops().grouped_matmul_weight(run.stream(), request));
  if (options.bias.is_none()) return Status::ok();
  return run.ops()
      .grouped_column_sum(run.stream(),
                          {gradient_of(run, options.bias), product_grad, offsets, label})
      .status();
}

/// out = in times the experts' matrices, or the transposed ones for gradients.
template <typename Options>
Status multiply(SegmentRun& run, const Options& options, const TensorView& out,
                const TensorView& in, bool is_backward, const Label& label) {
  Ops::GroupedMatmul request;
  request.out = out;
  request.a = in;
  request.b = parameter_of(run, options.weight);
  request.offsets = as_vector(run.activation(options.choice.offsets));
  if (!is_backward) request.bias = parameter_of(run, options.bias);
  request.transpose_b = options.is_transposed != is_backward;
  request.label = label;
  return run.ops().grouped_matmul(run.stream(), request).status();
}

}  // namespace

SegmentIo route_io(int logits, const RowChoice& choice, bool balances) {
  SegmentIo io;
  io.reads = {logits};
  io.writes = {choice.weights, choice.choices, choice.order, choice.places, choice.offsets};
  io.saved_for_input = {logits, choice.weights, choice.choices};
  if (balances) {
    io.saved_for_input.insert(io.saved_for_input.end(), {choice.order, choice.offsets});
    io.row_inputs = {RowInput::kLabels};
  }
  io.weightless = true;
  return io;
}

SegmentFlop route_flop(int64_t rows, int64_t experts, int64_t count, bool balances) {
  OpCall forward, group, backward, balance;
  forward.kind = OpKind::kRouteForward;
  group.kind = OpKind::kGroupRows;
  backward.kind = OpKind::kRouteBackward;
  forward.inputs[0].shape = backward.inputs[1].shape = Shape{rows, experts};
  group.inputs[0].shape = Shape{rows, count};
  balance.kind = OpKind::kBalanceForward;  // its backward costs as much
  if (balances) balance.inputs[0].shape = Shape{rows, experts};
  double price = balances ? op_flop(balance) : 0;
  return {op_flop(forward) + op_flop(group) + price, op_flop(backward) + price, 0};
}

SegmentIo expert_io(int in, const RowChoice& choice, bool combines, bool has_bias) {
  SegmentIo io;
  io.reads = {in, choice.order, choice.places, choice.offsets};
  io.saved_for_input = {choice.places, choice.offsets};
  io.saved_for_weight = {in, choice.order, choice.offsets};
  if (!combines) return io;
  // How much a result counts has a gradient too, which the product's own input gives.
  io.reads.push_back(choice.weights);
  io.saved_for_input.insert(io.saved_for_input.end(), {in, choice.order, choice.weights});
  io.saved_for_weight.push_back(choice.weights);
  if (!has_bias) return io;
  io.reads.push_back(choice.choices);
  io.saved_for_input.push_back(choice.choices);
  return io;
}

SegmentFlop expert_flop(const ExpertSizes& sizes, int64_t rows, bool combines, bool has_bias,
                        bool is_trained) {
  int64_t chosen = rows * sizes.count;
  double product = matmul_flop(chosen, sizes.out_columns, sizes.in_columns);
  // Rows on their way to and from their experts are as wide as those of the layer.
  int64_t columns = combines ? sizes.out_columns : sizes.in_columns;
  double gather = elementwise_flop(OpKind::kGatherRows, chosen, columns);
  double combine = elementwise_flop(OpKind::kCombineRows, chosen, columns);
  SegmentFlop flop{product, product, gather + (is_trained ? product : 0)};
  flop.forward += combines ? combine : gather;
  flop.backward_input += combines ? gather : combine;
  if (combines) {
    flop.backward_input += elementwise_flop(OpKind::kCombineBackward, chosen, sizes.in_columns);
  }
  if (has_bias && is_trained) {
    flop.backward_weight += elementwise_flop(OpKind::kGroupedColumnSum, chosen, sizes.out_columns);
  }
  return flop;
}

RouteSegment::RouteSegment(std::string name, Options options)
    : BasicSegment(std::move(name), route_io(options.logits, options.choice, options.balance > 0)),
      options_(options) {}

SegmentFlop RouteSegment::flop(const MicroBatchShape& shape) const {
  return route_flop(shape.rows(), options_.experts, options_.count, options_.balance > 0);
}

Status RouteSegment::forward(SegmentRun& run) const {
  const RowChoice& choice = options_.choice;
  Ops::RouteForward route;
  route.choices = run.activation(choice.choices);
  route.weights = run.activation(choice.weights);
  route.logits = run.activation(options_.logits);
  route.over_chosen = options_.over_chosen;
  route.label = forward_label();
  STAGECOACH_RETURN_IF_FAILED(run.ops().route_forward(run.stream(), route));
  TensorView order = as_vector(run.activation(choice.order));
  TensorView offsets = as_vector(run.activation(choice.offsets));
  STAGECOACH_RETURN_IF_FAILED(run.ops().group_rows(
      run.stream(),
      {order, run.activation(choice.places), offsets, route.choices, forward_label()}));
  TensorView report = run.report();
  if (options_.balance == 0 || report.is_none()) return Status::ok();
  return run.ops()
      .balance_forward(run.stream(), {report, route.logits, order, offsets,
                                      as_vector(run.row_input(RowInput::kLabels)),
                                      run.shape().sequence, forward_label()})
      .status();
}

Status RouteSegment::backward_input(SegmentRun& run) const {
  if (!run.wants_gradient(options_.logits)) return Status::ok();
  STAGECOACH_RETURN_IF_ERROR(check_only_reader(run, options_.logits));
  Ops::RouteBackward request;
  request.logits_grad = run.gradient(options_.logits);
  request.weights_grad = run.gradient(options_.choice.weights);
  request.logits = run.activation(options_.logits);
  request.choices = run.activation(options_.choice.choices);
  request.weights = run.activation(options_.choice.weights);
  request.over_chosen = options_.over_chosen;
  request.label = input_label();
  STAGECOACH_RETURN_IF_FAILED(run.ops().route_backward(run.stream(), request));
  if (options_.balance == 0) return Status::ok();
  Ops::BalanceBackward balance;
  balance.logits_grad = request.logits_grad;
  balance.logits = request.logits;
  balance.order = as_vector(run.activation(options_.choice.order));
  balance.offsets = as_vector(run.activation(options_.choice.offsets));
  balance.labels = as_vector(run.row_input(RowInput::kLabels));
  balance.sequence = run.shape().sequence;
  balance.grad_scale = run.loss_scale() * options_.balance;
  balance.label = input_label();
  return run.ops().balance_backward(run.stream(), balance).status();
}

ExpertLinearSegment::ExpertLinearSegment(std::string name, Options options)
    : BasicSegment(std::move(name), with_writes(expert_io(options.in, options.choice, false,
                                                          !options.bias.is_none()),
                                                options, -1, options.rows)),
      options_(options) {}

SegmentFlop ExpertLinearSegment::flop(const MicroBatchShape& shape) const {
  return expert_flop(options_.sizes, shape.rows(), false, !options_.bias.is_none(), true);
}

Status ExpertLinearSegment::forward(SegmentRun& run) const {
  const ExpertSizes& sizes = options_.sizes;
  TensorView rows = as_rows(run.activation(options_.rows), sizes.in_columns);
  STAGECOACH_RETURN_IF_FAILED(
      run.ops().gather_rows(run.stream(), {rows,
                                           run.activation(options_.in),
                                           as_vector(run.activation(options_.choice.order)),
                                           {},
                                           forward_label()}));
  return multiply(run, options_, as_rows(run.activation(options_.out), sizes.out_columns), rows,
                  false, forward_label());
}

Status ExpertLinearSegment::backward_input(SegmentRun& run) const {
  if (!run.wants_gradient(options_.in)) return Status::ok();
  const ExpertSizes& sizes = options_.sizes;
  TensorView rows_grad = as_rows(run.gradient(options_.rows), sizes.in_columns);
  STAGECOACH_RETURN_IF_ERROR(multiply(run, options_, rows_grad,
                                      as_rows(run.gradient(options_.out), sizes.out_columns), true,
                                      input_label()));
  Ops::CombineRows combine;
  combine.out = run.gradient(options_.in);
  combine.in = rows_grad;
  combine.places = run.activation(options_.choice.places);
  combine.accumulate = run.gradient_accumulates(options_.in);
  combine.label = input_label();
  return run.ops().combine_rows(run.stream(), combine).status();
}

Status ExpertLinearSegment::backward_weight(SegmentRun& run) const {
  const ExpertSizes& sizes = options_.sizes;
  TensorView rows = as_rows(run.gradient(options_.rows), sizes.in_columns);
  STAGECOACH_RETURN_IF_FAILED(
      run.ops().gather_rows(run.stream(), {rows,
                                           run.activation(options_.in),
                                           as_vector(run.activation(options_.choice.order)),
                                           {},
                                           weight_label()}));
  return add_weight_gradients(
      run, options_, rows, as_rows(run.gradient(options_.out), sizes.out_columns), weight_label());
}

ExpertSumSegment::ExpertSumSegment(std::string name, Options options)
    : BasicSegment(std::move(name),
                   with_writes(expert_io(options.in, options.choice, true, !options.bias.is_none()),
                               options, options.residual, options.products)),
      options_(options) {}

SegmentFlop ExpertSumSegment::flop(const MicroBatchShape& shape) const {
  SegmentFlop flop =
      expert_flop(options_.sizes, shape.rows(), true, !options_.bias.is_none(), true);
  if (options_.residual >= 0) {
    flop.backward_input += elementwise_flop(OpKind::kAdd, shape.rows(), options_.sizes.out_columns);
  }
  return flop;
}

Status ExpertSumSegment::forward(SegmentRun& run) const {
  const ExpertSizes& sizes = options_.sizes;
  TensorView products = as_rows(run.activation(options_.products), sizes.out_columns);
  STAGECOACH_RETURN_IF_ERROR(multiply(run, options_, products,
                                      as_rows(run.activation(options_.in), sizes.in_columns), false,
                                      forward_label()));
  Ops::CombineRows combine;
  combine.out = run.activation(options_.out);
  combine.in = products;
  combine.places = run.activation(options_.choice.places);
  combine.weights = run.activation(options_.choice.weights);
  if (options_.residual >= 0) combine.residual = run.activation(options_.residual);
  combine.label = forward_label();
  return run.ops().combine_rows(run.stream(), combine).status();
}

Status ExpertSumSegment::backward_input(SegmentRun& run) const {
  const ExpertSizes& sizes = options_.sizes;
  TensorView out_grad = run.gradient(options_.out);
  if (options_.residual >= 0) {
    STAGECOACH_RETURN_IF_ERROR(pass_gradient(run, options_.residual, out_grad));
  }
  STAGECOACH_RETURN_IF_ERROR(check_only_reader(run, options_.in));
  STAGECOACH_RETURN_IF_ERROR(check_only_reader(run, options_.choice.weights));
  TensorView products_grad = as_rows(run.gradient(options_.products), sizes.out_columns);
  STAGECOACH_RETURN_IF_FAILED(
      run.ops().gather_rows(run.stream(), {products_grad,
                                           out_grad,
                                           as_vector(run.activation(options_.choice.order)),
                                           {},
                                           input_label()}));
  TensorView in_grad = as_rows(run.gradient(options_.in), sizes.in_columns);
  STAGECOACH_RETURN_IF_ERROR(multiply(run, options_, in_grad, products_grad, true, input_label()));
  Ops::CombineBackward request;
  request.in_grad = request.product_grad = in_grad;
  request.weights_grad = run.gradient(options_.choice.weights);
  request.in = as_rows(run.activation(options_.in), sizes.in_columns);
  request.places = run.activation(options_.choice.places);
  request.weights = run.activation(options_.choice.weights);
  if (!options_.bias.is_none()) {
    request.out_grad = out_grad;
    request.bias = parameter_of(run, options_.bias);
    request.choices = run.activation(options_.choice.choices);
  }
  request.label = input_label();
  return run.ops().combine_backward(run.stream(), request).status();
}

Status ExpertSumSegment::backward_weight(SegmentRun& run) const {
  const ExpertSizes& sizes = options_.sizes;
  TensorView products_grad = as_rows(run.gradient(options_.products), sizes.out_columns);
  STAGECOACH_RETURN_IF_FAILED(run.ops().gather_rows(
      run.stream(),
      {products_grad, run.gradient(options_.out), as_vector(run.activation(options_.choice.order)),
       run.activation(options_.choice.weights), weight_label()}));
  return add_weight_gradients(run, options_, as_rows(run.activation(options_.in), sizes.in_columns),
                              products_grad, weight_label());
}

}  // namespace stagecoach
