#include "model/head_rotation.h"

#include <fmt/format.h>

#include "core/dtype.h"

namespace stagecoach {

namespace {

int part_count(DType dtype) {
  return dtype == DType::kF32 ? 1 : 3;
}

float rounded(float value, DType dtype) {
  if (dtype == DType::kBF16) return to_float(from_float<BFloat16>(value));
  return to_float(from_float<Float16>(value));
}

/// `count` elements of a vector from `first` on, as [rows, count / rows].
TensorView slice(const TensorView& vector, int64_t first, int64_t rows, int64_t columns) {
  TensorView view{{}, vector.dtype, Shape{rows, columns}};
  view.memory = vector.memory.slice(first * dtype_size_bytes(vector.dtype), view.size_bytes());
  return view;
}

}  // namespace

int64_t HeadRotation::table_elements(int64_t head_dim, int64_t positions, DType dtype) {
  return part_count(dtype) * positions * head_dim;
}

std::vector<float> HeadRotation::table_values(const RotaryScaling& scaling, int64_t head_dim,
                                              int64_t positions, DType dtype) {
  std::vector<float> rest = rotary_table(scaling, head_dim, positions);
  if (dtype == DType::kF32) return rest;
  std::vector<float> values;
  values.reserve(static_cast<size_t>(table_elements(head_dim, positions, dtype)));
  for (int part = 0; part < part_count(dtype); ++part) {
    for (float& number : rest) {
      values.push_back(rounded(number, dtype));
      number -= values.back();
    }
  }
  return values;
}

void HeadRotation::declare(SegmentIo& io) const {
  if (sum < 0) return;
  io.writes.push_back(sum);
  io.scratch_gradients.push_back(sum);
}

double HeadRotation::flop(int64_t rows) const {
  return rotary_flop(rows, heads, kv_heads, head_dim);
}

Status HeadRotation::turn(SegmentRun& run, const TensorView& qkv, const Label& label) const {
  return apply(run, qkv, sum < 0 ? TensorView{} : run.activation(sum), false, label);
}

Status HeadRotation::turn_back(SegmentRun& run, const TensorView& qkv_grad,
                               const Label& label) const {
  return apply(run, qkv_grad, sum < 0 ? TensorView{} : run.gradient(sum), true, label);
}

Status HeadRotation::apply(SegmentRun& run, const TensorView& qkv, const TensorView& sum_view,
                           bool inverse, const Label& label) const {
  int64_t sequence = run.shape().sequence;
  if (sequence > positions) {
    return invalid_argument(fmt::format(
        "sequences have {} tokens; the network was made for {} or fewer", sequence, positions));
  }
  TensorView constant = parameter_of(run, table);
  int64_t pairs = head_dim / 2;
  TensorView turns[2];
  for (int64_t half = 0; half < 2; ++half) {
    TensorView number = slice(constant, half * positions * pairs, sequence, pairs);
    if (!sum_view.is_none()) {
      TensorView whole = slice(sum_view, half * sequence * pairs, sequence, pairs);
      STAGECOACH_RETURN_IF_FAILED(run.ops().convert(run.stream(), {whole, number, label}));
      for (int part = 1; part < part_count(constant.dtype); ++part) {
        number = slice(constant, (2 * part + half) * positions * pairs, sequence, pairs);
        STAGECOACH_RETURN_IF_FAILED(run.ops().accumulate(run.stream(), {whole, number, label}));
      }
      number = whole;
    }
    turns[half] = number;
  }
  Ops::Rotary request{};
  request.qkv = qkv;
  request.cosines = turns[0];
  request.sines = turns[1];
  request.sequence = sequence;
  request.heads = heads;
  request.kv_heads = kv_heads;
  request.head_dim = head_dim;
  request.inverse = inverse;
  request.label = label;
  return run.ops().rotary(run.stream(), request).status();
}

}  // namespace stagecoach
