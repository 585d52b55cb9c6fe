#include "model/shape_chain.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <utility>

#include "model/basic_segment.h"

namespace stagecoach {

namespace {

/// A segment that has a shape and a price, and no arithmetic.
class ShapeSegment final : public BasicSegment {
 public:
  using Flop = std::function<SegmentFlop(const MicroBatchShape&)>;
  ShapeSegment(std::string name, SegmentIo io, Flop flop)
      : BasicSegment(std::move(name), std::move(io)), flop_(std::move(flop)) {}

  SegmentFlop flop(const MicroBatchShape& shape) const override { return flop_(shape); }
  Status forward(SegmentRun&) const override { return refuse(); }
  Status backward_input(SegmentRun&) const override { return refuse(); }

 private:
  Status refuse() const {
    return unimplemented(
        fmt::format("'{}' is planned and simulated in this version, not computed", name()));
  }
  Flop flop_;
};

SegmentFlop& operator+=(SegmentFlop& sum, const SegmentFlop& more) {
  sum.forward += more.forward;
  sum.backward_input += more.backward_input;
  sum.backward_weight += more.backward_weight;
  return sum;
}

SegmentFlop linear_flop(const ShapeLinear& linear, bool is_frozen, int64_t rank, int64_t rows) {
  int64_t chosen = rows * linear.choices;
  double product = matmul_flop(chosen, linear.columns(), linear.in_columns);
  SegmentFlop flop{product, product, is_frozen ? 0 : product};
  if (linear.has_experts()) {
    flop = expert_flop(linear.expert_sizes(), rows, linear.combines, linear.has_bias, !is_frozen);
  }
  if (rank > 0) {
    auto parts = static_cast<int64_t>(linear.out_columns.size());
    double adapters = matmul_flop(chosen, parts * rank, linear.in_columns) +
                      matmul_flop(chosen, linear.columns(), rank);
    flop += {adapters, adapters, adapters};
  }
  if (linear.residual >= 0) {
    // Sums of experts take the residual along.
    if (!linear.combines) {
      flop.forward += elementwise_flop(OpKind::kConvert, rows, linear.columns());
    }
    flop.backward_input += elementwise_flop(OpKind::kAdd, rows, linear.columns());
  }
  flop += {linear.rotation.flop(rows), linear.rotation.flop(rows), 0};
  if (linear.has_bias && !is_frozen && !linear.has_experts()) {
    flop.backward_weight += elementwise_flop(OpKind::kColumnSum, chosen, linear.columns());
  }
  return flop;
}

}  // namespace

double ShapeRotation::flop(int64_t rows) const {
  return heads == 0 ? 0 : rotary_flop(rows, heads, kv_heads, head_dim);
}

int64_t ShapeLinear::columns() const {
  return std::accumulate(out_columns.begin(), out_columns.end(), int64_t{0});
}

ShapeChain::ShapeChain(std::string name, DType dtype, int64_t rank) : dtype_(dtype), rank_(rank) {
  base.name = name;
  base.is_frozen = is_frozen();
  adapters.name = name + ".adapters";
  spec.name = std::move(name);
  spec.dtype = dtype;
}

int ShapeChain::activation(std::string_view name, DType dtype, int64_t columns,
                           int64_t fixed_rows) {
  spec.activations.push_back({std::string(name), dtype, columns, fixed_rows});
  return static_cast<int>(spec.activations.size()) - 1;
}

void ShapeChain::segment(std::string_view name, SegmentIo io,
                         std::function<SegmentFlop(const MicroBatchShape&)> flop) {
  spec.segments.push_back(std::make_unique<ShapeSegment>(fmt::format("{}.{}", spec.name, name),
                                                         std::move(io), std::move(flop)));
}

void ShapeChain::declare_rotation(const ShapeRotation& rotation, SegmentIo& io) {
  if (rotation.heads == 0 || dtype_ == DType::kF32) return;
  int index = activation("rotation", DType::kF32, rotation.head_dim);
  io.writes.push_back(index);
  io.scratch_gradients.push_back(index);
}

void ShapeChain::vector(std::string_view name, int64_t columns, int64_t count) {
  base.add(fmt::format("{}.{}", spec.name, name), Shape{count, columns}, false, {});
}

void ShapeChain::add_parameters(const ShapeLinear& linear) {
  int64_t count = std::max<int64_t>(1, linear.experts);
  base.add(fmt::format("{}.{}.weight", spec.name, linear.name),
           Shape{count, linear.in_columns, linear.columns()}, true, {});
  if (linear.has_bias) vector(fmt::format("{}.bias", linear.name), linear.columns(), count);
  int64_t rank = rank_of(linear);
  if (rank == 0) return;
  for (int64_t columns : linear.out_columns) {
    adapters.add(fmt::format("{}.{}.lora_A.weight", spec.name, linear.name),
                 Shape{count, linear.in_columns, rank}, true, {});
    adapters.add(fmt::format("{}.{}.lora_B.weight", spec.name, linear.name),
                 Shape{count, rank, columns}, true, {});
  }
}

/// All but the output, which is numbered after the product's own activations.
SegmentIo ShapeChain::linear_io(const ShapeLinear& linear) {
  SegmentIo io;
  if (linear.has_experts()) {
    io = expert_io(linear.in, linear.choice, linear.combines, linear.has_bias);
  } else {
    io.reads = {linear.in};
    io.saved_for_weight = {linear.in};
  }
  if (linear.residual >= 0) io.reads.push_back(linear.residual);
  auto own = [&](std::string_view what, int64_t columns) {
    int index = activation(fmt::format("{}.{}", linear.name, what), dtype_, columns);
    io.writes.push_back(index);
    io.scratch_gradients.push_back(index);
    return index;
  };
  declare_rotation(linear.rotation, io);
  if (is_frozen() && rank_of(linear) == 0) {
    io.saved_for_weight.clear();
    io.weightless = true;
  }
  if (rank_of(linear) > 0) {
    // The adapters' inner activation, for their second matrix.
    auto parts = static_cast<int64_t>(linear.out_columns.size());
    io.saved_for_weight.push_back(own("adapted", linear.choices * parts * rank_));
  }
  if (linear.has_experts()) {
    // Rows by expert: what the product reads, or what it yields.
    own("by_expert", linear.choices * (linear.combines ? linear.columns() : linear.in_columns));
  }
  return io;
}

int ShapeChain::linear(const ShapeLinear& linear) {
  add_parameters(linear);
  SegmentIo io = linear_io(linear);
  int64_t rows = linear.combines ? 1 : linear.choices;
  int out = activation(fmt::format("{}.out", linear.name), dtype_, rows * linear.columns());
  io.writes.push_back(out);
  segment(linear.name, std::move(io),
          [linear, frozen = is_frozen(), rank = rank_of(linear)](const MicroBatchShape& shape) {
            return linear_flop(linear, frozen, rank, shape.rows());
          });
  return out;
}

}  // namespace stagecoach
