#include <cmath>

#include "backends/cpu/cpu_op_families.h"
#include "backends/cpu/cpu_row_sums.h"
#include "backends/cpu/cpu_tensor.h"

namespace stagecoach {

namespace {

constexpr int64_t kRowTile = 16;

/// A [C] parameter as fp32, or null for none.
const float* read_parameter(const TensorView& tensor, int64_t columns, ScratchFrame& frame) {
  if (tensor.is_none()) return nullptr;
  return read_floats(tensor, 0, columns, frame.floats(columns));
}

}  // namespace

Status cpu_layer_norm_forward(const OpCall& call, TaskPool& pool) {
  const TensorView& out = call.outputs[0];
  const TensorView& in = call.inputs[0];
  float* means = typed_data<float>(call.outputs[1]);
  float* rstds = typed_data<float>(call.outputs[2]);
  int64_t columns = in.shape[1];
  ScratchFrame parameters;
  const float* weight = read_parameter(call.inputs[1], columns, parameters);
  const float* bias = read_parameter(call.inputs[2], columns, parameters);
  for_tiles(pool, in.shape[0], kRowTile, [&](int64_t first, int64_t end) {
    ScratchFrame frame;
    float* converted = frame.floats(columns);
    float* result = frame.floats(columns);
    float count = static_cast<float>(columns);
    for (int64_t row = first; row < end; ++row) {
      const float* x = read_floats(in, row * columns, columns, converted);
      float mean = vec::sum(x, columns) / count;
      float variance = vec::squared_deviation(x, mean, columns) / count;
      float rstd = 1.0f / std::sqrt(variance + call.epsilon);
      vec::normalize(result, x, mean, rstd, weight, bias, columns);
      write_floats(out, row * columns, columns, result, false);
      means[row] = mean;
      rstds[row] = rstd;
    }
  });
  return Status::ok();
}

Status cpu_layer_norm_backward_input(const OpCall& call, TaskPool& pool) {
  const TensorView& in_grad = call.outputs[0];
  const TensorView& out_grad = call.inputs[0];
  const TensorView& in = call.inputs[1];
  const float* means = typed_data<float>(call.inputs[3]);
  const float* rstds = typed_data<float>(call.inputs[4]);
  int64_t columns = in.shape[1];
  ScratchFrame parameters;
  const float* weight = read_parameter(call.inputs[2], columns, parameters);
  for_tiles(pool, in.shape[0], kRowTile, [&](int64_t first, int64_t end) {
    ScratchFrame frame;
    float* grad_scratch = frame.floats(columns);
    float* in_scratch = frame.floats(columns);
    float* result = frame.floats(columns);
    for (int64_t row = first; row < end; ++row) {
      const float* grad = read_floats(out_grad, row * columns, columns, grad_scratch);
      const float* x = read_floats(in, row * columns, columns, in_scratch);
      vec::normalize_backward(result, grad, x, means[row], rstds[row], weight, columns);
      write_floats(in_grad, row * columns, columns, result, call.accumulate);
    }
  });
  return Status::ok();
}

Status cpu_layer_norm_backward_weight(const OpCall& call, TaskPool& pool) {
  float* weight_grad = typed_data<float>(call.outputs[0]);
  float* bias_grad = typed_data<float>(call.outputs[1]);
  const TensorView& out_grad = call.inputs[0];
  const TensorView& in = call.inputs[1];
  const float* means = typed_data<float>(call.inputs[2]);
  const float* rstds = typed_data<float>(call.inputs[3]);
  int64_t columns = in.shape[1];
  // Sums of the weight's and, when wanted, the bias's gradient lie side by side.
  int64_t width = bias_grad == nullptr ? columns : 2 * columns;
  sum_rows(
      pool, in.shape[0], width,
      [&](float* sums, int64_t row) {
        ScratchFrame frame;
        const float* grad = read_floats(out_grad, row * columns, columns, frame.floats(columns));
        const float* x = read_floats(in, row * columns, columns, frame.floats(columns));
        float* bias_sums = bias_grad == nullptr ? nullptr : sums + columns;
        vec::normalize_backward_weight(sums, bias_sums, grad, x, means[row], rstds[row], columns);
      },
      [&](int64_t first, int64_t end, const float* totals) {
        int64_t split = std::clamp(columns, first, end);
        if (first < split) vec::accumulate(weight_grad + first, totals + first, split - first);
        if (split < end) vec::accumulate(bias_grad + split - columns, totals + split, end - split);
      });
  return Status::ok();
}

}  // namespace stagecoach
