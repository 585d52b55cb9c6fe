#include "model/basic_segment.h"

namespace stagecoach {

BasicSegment::BasicSegment(std::string name, SegmentIo io)
    : name_(std::move(name)),
      io_(std::move(io)),
      forward_label_(name_ + ".forward"),
      input_label_(name_ + ".backward_input"),
      weight_label_(name_ + ".backward_weight") {}

Status BasicSegment::pass_gradient(SegmentRun& run, int index, const TensorView& out_grad) const {
  if (!run.wants_gradient(index)) return Status::ok();
  TensorView grad = run.gradient(index);
  if (run.gradient_accumulates(index)) {
    return run.ops().add(run.stream(), {grad, grad, out_grad, input_label_}).status();
  }
  return run.ops().convert(run.stream(), {grad, out_grad, input_label_}).status();
}

Status BasicSegment::check_only_reader(SegmentRun& run, int index) const {
  if (!run.gradient_accumulates(index)) return Status::ok();
  return unimplemented("segment '" + name_ +
                       "' overwrites a gradient to which another segment adds");
}

TensorView parameter_of(SegmentRun& run, ParameterRef ref) {
  return ref.is_none() ? TensorView{} : run.parameter(ref.use, ref.parameter);
}

TensorView gradient_of(SegmentRun& run, ParameterRef ref) {
  return ref.is_none() ? TensorView{} : run.parameter_gradient(ref.use, ref.parameter);
}

std::vector<int> uses_of(std::initializer_list<ParameterRef> parameters) {
  std::vector<int> uses;
  for (ParameterRef parameter : parameters) {
    if (!parameter.is_none()) uses.push_back(parameter.use);
  }
  return uses;
}

TensorView as_joined(TensorView first, Shape shape) {
  if (first.is_none()) return first;
  first.shape = shape;
  first.memory.size = first.size_bytes();
  return first;
}

TensorView as_rows(TensorView view, int64_t columns) {
  view.shape = Shape{view.element_count() / columns, columns};
  return view;
}

TensorView as_vector(TensorView view) {
  view.shape = Shape{view.element_count()};
  return view;
}

double elementwise_flop(OpKind kind, int64_t rows, int64_t columns, float drop_probability) {
  OpCall call;
  call.kind = kind;
  call.outputs[0].shape = Shape{rows, columns};
  call.inputs[0].shape = Shape{rows, columns};
  call.drop_probability = drop_probability;
  return op_flop(call);
}

double matmul_flop(int64_t m, int64_t n, int64_t k) {
  OpCall call;
  call.kind = OpKind::kMatmul;
  call.outputs[0].shape = Shape{m, n};
  call.inputs[0].shape = Shape{m, k};
  call.inputs[1].shape = Shape{k, n};
  return op_flop(call);
}

double rotary_flop(int64_t rows, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  OpCall call;
  call.kind = OpKind::kRotary;
  call.outputs[0].shape = Shape{rows, (heads + 2 * kv_heads) * head_dim};
  call.heads = heads;
  call.kv_heads = kv_heads;
  call.head_dim = head_dim;
  return op_flop(call);
}

}  // namespace stagecoach
