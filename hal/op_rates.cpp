#include "hal/op_rates.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"

namespace stagecoach {

namespace {

bool is_number(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

DType operand_dtype(const OpCall& call) {
  for (const TensorView& input : call.inputs) {
    if (!input.is_none() && is_number(input.dtype)) return input.dtype;
  }
  // Indices are as wide as this.
  return is_number(call.outputs[0].dtype) ? call.outputs[0].dtype : DType::kF32;
}

double operand_bytes(const OpCall& call) {
  double bytes = 0;
  // Of a table only the rows that are chosen are touched.
  bool is_lookup =
      call.kind == OpKind::kEmbeddingForward || call.kind == OpKind::kEmbeddingBackward;
  if (is_lookup) {
    bool is_forward = call.kind == OpKind::kEmbeddingForward;
    return 2 * static_cast<double>((is_forward ? call.outputs[0] : call.inputs[0]).size_bytes());
  }
  auto add = [&](const TensorView& operand) {
    if (!operand.is_none()) bytes += static_cast<double>(operand.size_bytes());
  };
  std::for_each(call.outputs.begin(), call.outputs.end(), add);
  std::for_each(call.inputs.begin(), call.inputs.end(), add);
  return bytes;
}

std::string product_layout(const OpCall& call) {
  std::string layout;
  layout += call.transpose_a ? 't' : 'n';
  layout += call.transpose_b ? 't' : 'n';
  if (call.accumulate) layout += '+';
  if (call.outputs[0].dtype != call.inputs[0].dtype) layout += ">fp32";
  return layout;
}

/// What libraries do not have, so that another kernel computes it: forward | qkv, sinks, document
/// starts; backward | out_grad, qkv, out, lse, sinks, document starts.
std::string attention_layout(const OpCall& call) {
  size_t sinks = call.kind == OpKind::kAttentionForward ? 1 : 4;
  std::string layout;
  auto add = [&](bool is_there, const char* name) {
    if (is_there) layout += (layout.empty() ? "" : "+") + std::string(name);
  };
  add(call.drop_probability > 0, "dropout");
  add(call.window > 0 && call.window < call.sequence, "window");
  add(!call.inputs[sinks].is_none(), "sinks");
  add(!call.inputs[sinks + 1].is_none(), "documents");
  return layout;
}

/// Of one element type or of two that are as wide, whose kernels differ little.
bool is_as_wide(DType a, DType b) {
  return dtype_size_bytes(a) == dtype_size_bytes(b);
}

/// How unlike two operations are whose rates are to be compared: the squared distance in octaves.
double distance(const OpShape& a, const OpShape& b) {
  double sum = 0;
  for (size_t index = 0; index < std::min(a.sizes.size(), b.sizes.size()); ++index) {
    double octaves = std::log2(static_cast<double>(std::max<int64_t>(1, a.sizes[index])) /
                               static_cast<double>(std::max<int64_t>(1, b.sizes[index])));
    sum += octaves * octaves;
  }
  return sum;
}

}  // namespace

bool is_arithmetic(OpKind kind) {
  switch (kind) {
    case OpKind::kMatmul:
    case OpKind::kAttentionForward:
    case OpKind::kAttentionBackward:
    case OpKind::kLinearCrossEntropyForward:
    case OpKind::kLinearCrossEntropyBackwardInput:
    case OpKind::kLinearCrossEntropyBackwardWeight:
    case OpKind::kGroupedMatmul:
    case OpKind::kGroupedMatmulWeight:
      return true;
    default:
      return false;
  }
}

OpShape op_shape(const OpCall& call) {
  OpShape shape;
  shape.kind = call.kind;
  shape.dtype = operand_dtype(call);
  shape.work = is_arithmetic(call.kind) ? op_flop(call) : operand_bytes(call);
  const TensorView& out = call.outputs[0];
  const TensorView& first = call.inputs[0];
  const TensorView& second = call.inputs[1];
  switch (call.kind) {
    case OpKind::kMatmul:
      shape.layout = product_layout(call);
      shape.sizes = {out.shape[0], out.shape[1], first.shape[call.transpose_a ? 0 : 1]};
      break;
    case OpKind::kGroupedMatmul:
      shape.layout = product_layout(call);
      shape.sizes = {out.shape[0], out.shape[1], first.shape[1], second.shape[0]};
      break;
    case OpKind::kGroupedMatmulWeight:
      shape.sizes = {first.shape[1], second.shape[1], first.shape[0], out.shape[0]};
      break;
    case OpKind::kAttentionForward:
    case OpKind::kAttentionBackward: {
      shape.layout = attention_layout(call);
      int64_t keys = call.window > 0 ? std::min(call.window, call.sequence) : call.sequence;
      shape.sizes = {first.shape[0], call.sequence, call.heads * call.head_dim, call.head_dim,
                     keys};
      break;
    }
    case OpKind::kLinearCrossEntropyForward:
    case OpKind::kLinearCrossEntropyBackwardInput:
    case OpKind::kLinearCrossEntropyBackwardWeight:
      shape.sizes = {first.shape[0], second.shape[0], first.shape[1]};
      break;
    default:
      shape.sizes = {static_cast<int64_t>(shape.work)};
  }
  return shape;
}

void OpRates::add(const TimedOp& op) {
  STAGECOACH_CHECK(op.time_ns > 0 && op.shape.work > 0);
  auto same = std::find_if(ops_.begin(), ops_.end(),
                           [&](const TimedOp& one) { return one.shape == op.shape; });
  if (same == ops_.end()) {
    ops_.push_back(op);
    counts_.push_back(1);
    return;
  }
  int& count = counts_[static_cast<size_t>(same - ops_.begin())];
  same->time_ns += (op.time_ns - same->time_ns) / ++count;
}

bool OpRates::knows(OpKind kind, DType dtype) const {
  return std::any_of(ops_.begin(), ops_.end(), [&](const TimedOp& one) {
    return one.shape.kind == kind && is_as_wide(one.shape.dtype, dtype);
  });
}

namespace {

/// The rates of the nearest, weighted by the fourth power of how near they are.
double time_by_rate(const OpShape& shape, const std::vector<const TimedOp*>& known) {
  constexpr double kSame = 1e-4;  ///< octaves squared: as good as the same
  double weights = 0, log_rate = 0;
  for (const TimedOp* one : known) {
    double near = 1 / (distance(shape, one->shape) + kSame);
    double weight = near * near;
    weights += weight;
    log_rate += weight * std::log(one->shape.work / one->time_ns);
  }
  return shape.work / std::exp(log_rate / weights);
}

/// On the line between its neighbours; beyond them in proportion.
double time_by_bytes(const OpShape& shape, std::vector<const TimedOp*> known) {
  std::sort(known.begin(), known.end(),
            [](const TimedOp* a, const TimedOp* b) { return a->shape.work < b->shape.work; });
  auto above = std::find_if(known.begin(), known.end(),
                            [&](const TimedOp* one) { return one->shape.work >= shape.work; });
  if (above == known.begin()) return (*above)->time_ns * shape.work / (*above)->shape.work;
  const TimedOp& low = **(above - 1);
  if (above == known.end()) return low.time_ns * shape.work / low.shape.work;
  double share = (shape.work - low.shape.work) / ((*above)->shape.work - low.shape.work);
  return low.time_ns + share * ((*above)->time_ns - low.time_ns);
}

}  // namespace

double OpRates::time_ns(const OpShape& shape) const {
  std::vector<const TimedOp*> known;
  for (const TimedOp& one : ops_) {
    bool is_alike = one.shape.kind == shape.kind && is_as_wide(one.shape.dtype, shape.dtype);
    if (is_alike) known.push_back(&one);
  }
  STAGECOACH_CHECK(!known.empty());
  // Another layout is another kernel: it counts where there is no better.
  bool has_layout = std::any_of(known.begin(), known.end(), [&](const TimedOp* one) {
    return one->shape.layout == shape.layout;
  });
  if (has_layout) {
    std::erase_if(known, [&](const TimedOp* one) { return one->shape.layout != shape.layout; });
  }
  double time =
      is_arithmetic(shape.kind) ? time_by_rate(shape, known) : time_by_bytes(shape, known);
  return std::max(time, kLeastOpNs);
}

}  // namespace stagecoach
