#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/segment.h"

namespace stagecoach {

/// A parameter of the layer: tensor `parameter` of block use `use`. Default: none.
struct ParameterRef {
  int use = -1;
  int parameter = 0;
  bool is_none() const { return use < 0; }
};

/// What the built-in segments share: a name, declarations, and labels made once, because making
/// them while enqueuing would allocate.
class BasicSegment : public Segment {
 public:
  std::string_view name() const final { return name_; }
  const SegmentIo& io() const final { return io_; }

 protected:
  BasicSegment(std::string name, SegmentIo io);

  const Label& forward_label() const { return forward_label_; }
  const Label& input_label() const { return input_label_; }
  const Label& weight_label() const { return weight_label_; }

  /// Adds `out_grad` to the gradient of read activation `index`, or makes it that gradient, when
  /// anybody wants it: the backward pass of a branch that leaves values alone.
  Status pass_gradient(SegmentRun& run, int index, const TensorView& out_grad) const;
  /// Ok unless another segment's part of the gradient of read activation `index` is there already,
  /// which an operation that only overwrites would lose.
  Status check_only_reader(SegmentRun& run, int index) const;

 private:
  std::string name_;
  SegmentIo io_;
  Label forward_label_;
  Label input_label_;
  Label weight_label_;
};

/// The compute copy of a parameter, and its fp32 gradient; none for none.
TensorView parameter_of(SegmentRun& run, ParameterRef ref);
TensorView gradient_of(SegmentRun& run, ParameterRef ref);

/// The block uses of parameters, without none: SegmentIo::weight_uses.
std::vector<int> uses_of(std::initializer_list<ParameterRef> parameters);

/// Tensors that lie one behind the other without gaps, as one of `shape`; `first` is the first.
TensorView as_joined(TensorView first, Shape shape);

/// The same elements as rows of `columns`.
TensorView as_rows(TensorView view, int64_t columns);

/// [rows, 1] seen as [rows], as ops take ids, labels, losses and statistics.
TensorView as_vector(TensorView view);

/// What `op_flop` says of an operation without products on [rows, columns].
double elementwise_flop(OpKind kind, int64_t rows, int64_t columns, float drop_probability = 0);
/// Of turning the query and key heads of `rows` rows of qkv.
double rotary_flop(int64_t rows, int64_t heads, int64_t kv_heads, int64_t head_dim);
/// What `op_flop` says of a matmul [m, k] x [k, n].
double matmul_flop(int64_t m, int64_t n, int64_t k);

}  // namespace stagecoach
