#include <cmath>
#include <limits>

#include "backends/cpu/cpu_op_families.h"
#include "backends/cpu/cpu_tensor.h"
#include "core/flush_denormals.h"
#include "hal/adamw_element.h"

namespace stagecoach {

namespace {

constexpr int64_t kRowTile = 16;
constexpr int64_t kTask = 16 * 1024;
constexpr int64_t kPiece = 1024;

/// The gates and the ups of rows: in two tensors, side by side in one, or in turn in one.
struct GatedRows {
  GatedRows(const TensorView& gate_tensor, const TensorView& up_tensor, int64_t result_columns,
            bool in_turn)
      : gate(gate_tensor),
        up(up_tensor.is_none() ? gate_tensor : up_tensor),
        columns(result_columns),
        stride(gate_tensor.shape[1]),
        offset(up_tensor.is_none() ? columns : 0),
        is_interleaved(in_turn) {}

  void read(int64_t row, float* gates, float* ups) const {
    if (!is_interleaved) {
      vec::load(gate.dtype, element_address(gate, row * stride), columns, gates);
      vec::load(up.dtype, element_address(up, row * stride + offset), columns, ups);
      return;
    }
    ScratchFrame frame;
    float* both = frame.floats(2 * columns);
    vec::load(gate.dtype, element_address(gate, row * stride), 2 * columns, both);
    for (int64_t i = 0; i < columns; ++i) {
      gates[i] = both[2 * i];
      ups[i] = both[2 * i + 1];
    }
  }
  /// Overwrites `gates` and `ups`.
  void write(int64_t row, float* gates, float* ups) const {
    if (!is_interleaved) {
      write_floats(gate, row * stride, columns, gates, false);
      write_floats(up, row * stride + offset, columns, ups, false);
      return;
    }
    ScratchFrame frame;
    float* both = frame.floats(2 * columns);
    for (int64_t i = 0; i < columns; ++i) {
      both[2 * i] = gates[i];
      both[2 * i + 1] = ups[i];
    }
    write_floats(gate, row * stride, 2 * columns, both, false);
  }

  const TensorView& gate;
  const TensorView& up;
  int64_t columns;
  int64_t stride;
  int64_t offset;
  bool is_interleaved;
};

/// values[i], at most `high` and at least `low`; NaN stays.
void clamp_values(float* values, float low, float high, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    values[i] = values[i] > high ? high : values[i];
    values[i] = values[i] < low ? low : values[i];
  }
}

/// sigmoid[i] = 1 / (1 + exp(-alpha * x[i])).
void compute_sigmoid(float* sigmoid, const float* x, float alpha, int64_t count) {
  vec::scale(sigmoid, x, -alpha, count);
  vec::exp(sigmoid, sigmoid, count);
  for (int64_t i = 0; i < count; ++i) sigmoid[i] = 1.0f / (1.0f + sigmoid[i]);
}

}  // namespace

Status cpu_gated_silu_forward(const OpCall& call, TaskPool& pool) {
  const TensorView& out = call.outputs[0];
  const GatedNumbers& numbers = call.gated;
  int64_t columns = out.shape[1];
  GatedRows operands(call.inputs[0], call.inputs[1], columns, numbers.is_interleaved);
  for_tiles(pool, out.shape[0], kRowTile, [&](int64_t first, int64_t end) {
    ScratchFrame frame;
    float* gate = frame.floats(columns);
    float* up = frame.floats(columns);
    float* result = frame.floats(columns);
    for (int64_t row = first; row < end; ++row) {
      operands.read(row, gate, up);
      clamp_values(gate, -std::numeric_limits<float>::infinity(), numbers.limit, columns);
      clamp_values(up, -numbers.limit, numbers.limit, columns);
      compute_sigmoid(result, gate, numbers.alpha, columns);
      vec::multiply_into(result, gate, columns);
      for (int64_t i = 0; i < columns; ++i) result[i] *= up[i] + numbers.up_offset;
      write_floats(out, row * columns, columns, result, false);
    }
  });
  return Status::ok();
}

Status cpu_gated_silu_backward(const OpCall& call, TaskPool& pool) {
  const TensorView& out_grad = call.inputs[0];
  const GatedNumbers& numbers = call.gated;
  int64_t columns = out_grad.shape[1];
  GatedRows operands(call.inputs[1], call.inputs[2], columns, numbers.is_interleaved);
  GatedRows grads(call.outputs[0], call.outputs[1], columns, numbers.is_interleaved);
  for_tiles(pool, out_grad.shape[0], kRowTile, [&](int64_t first, int64_t end) {
    ScratchFrame frame;
    float* scratch = frame.floats(columns);
    float* gate = frame.floats(columns);
    float* up = frame.floats(columns);
    float* cut = frame.floats(columns);
    float* sigmoid = frame.floats(columns);
    for (int64_t row = first; row < end; ++row) {
      const float* grad = read_floats(out_grad, row * columns, columns, scratch);
      operands.read(row, gate, up);
      std::copy_n(gate, columns, cut);
      clamp_values(cut, -std::numeric_limits<float>::infinity(), numbers.limit, columns);
      compute_sigmoid(sigmoid, cut, numbers.alpha, columns);
      for (int64_t i = 0; i < columns; ++i) {
        float factor = up[i] > numbers.limit ? numbers.limit : up[i];
        factor = (factor < -numbers.limit ? -numbers.limit : factor) + numbers.up_offset;
        float slope = sigmoid[i] * (1.0f + numbers.alpha * cut[i] * (1.0f - sigmoid[i]));
        // What was cut off has no gradient.
        gate[i] = gate[i] > numbers.limit ? 0.0f : grad[i] * factor * slope;
        bool is_cut = up[i] > numbers.limit || up[i] < -numbers.limit;
        up[i] = is_cut ? 0.0f : grad[i] * cut[i] * sigmoid[i];
      }
      grads.write(row, gate, up);
    }
  });
  return Status::ok();
}

Status cpu_adamw(const OpCall& call, TaskPool& pool) {
  float* parameters = typed_data<float>(call.outputs[0]);
  float* first_moment = typed_data<float>(call.outputs[1]);
  float* second_moment = typed_data<float>(call.outputs[2]);
  const TensorView& gradient = call.inputs[0];
  const AdamWFactors factors = adamw_factors(call);
  for_tiles(pool, gradient.element_count(), kTask, [&](int64_t task_first, int64_t task_end) {
    float converted[kPiece];
    for (int64_t first = task_first; first < task_end; first += kPiece) {
      int64_t count = std::min(kPiece, task_end - first);
      const float* gradients = read_floats(gradient, first, count, converted);
      FlushDenormals flush;  // only from here on: denormal fp16 gradients count
      for (int64_t i = 0; i < count; ++i) {
        update_adamw_element(factors, gradients[i], parameters[first + i], first_moment[first + i],
                             second_moment[first + i]);
      }
    }
  });
  return Status::ok();
}

Status cpu_finite_check(const OpCall& call, TaskPool& pool) {
  const TensorView& in = call.inputs[0];
  int64_t count = in.element_count();
  ScratchFrame frame;
  auto* counts = reinterpret_cast<uint64_t*>(frame.doubles(divide_up(count, kTask)));
  for_tiles(pool, count, kTask, [&](int64_t task_first, int64_t task_end) {
    float converted[kPiece];
    uint64_t found = 0;
    for (int64_t first = task_first; first < task_end; first += kPiece) {
      int64_t size = std::min(kPiece, task_end - first);
      const float* values = read_floats(in, first, size, converted);
      for (int64_t i = 0; i < size; ++i) found += std::isfinite(values[i]) ? 0 : 1;
    }
    counts[task_first / kTask] = found;
  });
  uint64_t total = 0;
  for (int64_t i = 0; i < divide_up(count, kTask); ++i) total += counts[i];
  *typed_data<uint64_t>(call.outputs[0]) = total;
  return Status::ok();
}

Status cpu_join_master(const OpCall& call, TaskPool& pool) {
  auto* master = typed_data<uint32_t>(call.outputs[0]);
  const auto* high = typed_data<const BFloat16>(call.inputs[0]);
  const auto* remainder = typed_data<const int16_t>(call.inputs[1]);
  for_tiles(pool, call.outputs[0].element_count(), kTask, [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) {
      uint32_t bits = static_cast<uint32_t>(high[i].bits) << 16;
      master[i] = bits + static_cast<uint32_t>(int32_t{remainder[i]});
    }
  });
  return Status::ok();
}

Status cpu_split_master(const OpCall& call, TaskPool& pool) {
  auto* high = typed_data<BFloat16>(call.outputs[0]);
  auto* remainder = typed_data<int16_t>(call.outputs[1]);
  const auto* master = typed_data<const uint32_t>(call.inputs[0]);
  for_tiles(pool, call.inputs[0].element_count(), kTask, [&](int64_t first, int64_t end) {
    for (int64_t i = first; i < end; ++i) {
      high[i].bits = static_cast<uint16_t>((master[i] + 0x8000u) >> 16);
      remainder[i] = static_cast<int16_t>(master[i] & 0xffffu);
    }
  });
  return Status::ok();
}

}  // namespace stagecoach
