#include <cmath>

#include "backends/cpu/cpu_op_families.h"
#include "backends/cpu/cpu_row_sums.h"
#include "backends/cpu/cpu_tensor.h"

namespace stagecoach {

namespace {

constexpr int64_t kRowTile = 16;

/// normal = x / root mean square, times weight; returns 1 / the root mean square.
float normalize_rms(float* result, const float* x, const float* weight, float epsilon,
                    int64_t count) {
  float mean = vec::dot(x, x, count) / static_cast<float>(count);
  float rstd = 1.0f / std::sqrt(mean + epsilon);
  vec::scale(result, x, rstd, count);
  vec::multiply_into(result, weight, count);
  return rstd;
}

/// result = the gradient of x. `grad` becomes grad * weight.
void normalize_rms_backward(float* result, float* grad, const float* x, const float* weight,
                            float rstd, int64_t count) {
  vec::multiply_into(grad, weight, count);
  float product = vec::dot(grad, x, count) * rstd / static_cast<float>(count);
  for (int64_t i = 0; i < count; ++i) {
    result[i] = rstd * (grad[i] - x[i] * rstd * product);
  }
}

void load_row(const TensorView& tensor, int64_t first, int64_t count, float* values) {
  vec::load(tensor.dtype, element_address(tensor, first), count, values);
}

/// Heads of a packed row: [0, q) query, [q, normed) key, the rest value heads.
struct Heads {
  explicit Heads(const OpCall& call)
      : q(call.heads),
        normed(call.heads + call.kv_heads),
        all(call.heads + 2 * call.kv_heads),
        dim(call.head_dim) {}
  int64_t q, normed, all, dim;
};

/// Both weights of QK-norm as fp32, by head.
struct HeadWeights {
  HeadWeights(const OpCall& call, size_t first_input, ScratchFrame& frame) {
    for (size_t i = 0; i < 2; ++i) {
      const TensorView& tensor = call.inputs[first_input + i];
      weights[i] = read_floats(tensor, 0, call.head_dim, frame.floats(call.head_dim));
    }
  }
  const float* weights[2];
};

}  // namespace

Status cpu_rms_norm_forward(const OpCall& call, TaskPool& pool) {
  const TensorView& in = call.inputs[0];
  const TensorView& residual = call.inputs[2];
  float* rstds = typed_data<float>(call.outputs[1]);
  int64_t columns = in.shape[1];
  ScratchFrame parameters;
  const float* weight = read_floats(call.inputs[1], 0, columns, parameters.floats(columns));
  for_tiles(pool, in.shape[0], kRowTile, [&](int64_t first, int64_t end) {
    ScratchFrame frame;
    float* x = frame.floats(columns);
    float* more = frame.floats(columns);
    for (int64_t row = first; row < end; ++row) {
      load_row(in, row * columns, columns, x);
      if (!residual.is_none()) {
        vec::accumulate(x, read_floats(residual, row * columns, columns, more), columns);
        write_floats(call.outputs[2], row * columns, columns, x, false);
        // What the backward pass will read is what is normalised.
        load_row(call.outputs[2], row * columns, columns, x);
      }
      rstds[row] = normalize_rms(more, x, weight, call.epsilon, columns);
      write_floats(call.outputs[0], row * columns, columns, more, false);
    }
  });
  return Status::ok();
}

Status cpu_rms_norm_backward_input(const OpCall& call, TaskPool& pool) {
  const TensorView& in = call.inputs[1];
  const float* rstds = typed_data<float>(call.inputs[3]);
  int64_t columns = in.shape[1];
  ScratchFrame parameters;
  const float* weight = read_floats(call.inputs[2], 0, columns, parameters.floats(columns));
  for_tiles(pool, in.shape[0], kRowTile, [&](int64_t first, int64_t end) {
    ScratchFrame frame;
    float* grad = frame.floats(columns);
    float* x = frame.floats(columns);
    float* result = frame.floats(columns);
    for (int64_t row = first; row < end; ++row) {
      load_row(call.inputs[0], row * columns, columns, grad);
      load_row(in, row * columns, columns, x);
      normalize_rms_backward(result, grad, x, weight, rstds[row], columns);
      write_floats(call.outputs[0], row * columns, columns, result, call.accumulate);
    }
  });
  return Status::ok();
}

Status cpu_rms_norm_backward_weight(const OpCall& call, TaskPool& pool) {
  const TensorView& in = call.inputs[1];
  const float* rstds = typed_data<float>(call.inputs[2]);
  float* weight_grad = typed_data<float>(call.outputs[0]);
  int64_t columns = in.shape[1];
  sum_rows(
      pool, in.shape[0], columns,
      [&](float* sums, int64_t row) {
        ScratchFrame frame;
        float* grad = frame.floats(columns);
        float* x = frame.floats(columns);
        load_row(call.inputs[0], row * columns, columns, grad);
        load_row(in, row * columns, columns, x);
        vec::normalize_backward_weight(sums, nullptr, grad, x, 0.0f, rstds[row], columns);
      },
      [&](int64_t first, int64_t end, const float* totals) {
        vec::accumulate(weight_grad + first, totals + first, end - first);
      });
  return Status::ok();
}

Status cpu_qk_norm_forward(const OpCall& call, TaskPool& pool) {
  const TensorView& in = call.inputs[0];
  const TensorView& out = call.outputs[0];
  float* rstds = typed_data<float>(call.outputs[1]);
  Heads heads(call);
  ScratchFrame parameters;
  HeadWeights by_kind(call, 1, parameters);
  for_tiles(pool, in.shape[0], kRowTile, [&](int64_t first, int64_t end) {
    ScratchFrame frame;
    float* x = frame.floats(heads.dim);
    float* result = frame.floats(heads.dim);
    for (int64_t index = first * heads.all; index < end * heads.all; ++index) {
      int64_t head = index % heads.all;
      load_row(in, index * heads.dim, heads.dim, x);
      if (head < heads.normed) {
        const float* weight = by_kind.weights[head < heads.q ? 0 : 1];
        rstds[index / heads.all * heads.normed + head] =
            normalize_rms(result, x, weight, call.epsilon, heads.dim);
      }
      write_floats(out, index * heads.dim, heads.dim, head < heads.normed ? result : x, false);
    }
  });
  return Status::ok();
}

Status cpu_qk_norm_backward_input(const OpCall& call, TaskPool& pool) {
  const TensorView& in = call.inputs[1];
  const float* rstds = typed_data<float>(call.inputs[4]);
  Heads heads(call);
  ScratchFrame parameters;
  HeadWeights by_kind(call, 2, parameters);
  for_tiles(pool, in.shape[0], kRowTile, [&](int64_t first, int64_t end) {
    ScratchFrame frame;
    float* grad = frame.floats(heads.dim);
    float* x = frame.floats(heads.dim);
    float* result = frame.floats(heads.dim);
    for (int64_t index = first * heads.all; index < end * heads.all; ++index) {
      int64_t head = index % heads.all;
      load_row(call.inputs[0], index * heads.dim, heads.dim, grad);
      if (head < heads.normed) {
        load_row(in, index * heads.dim, heads.dim, x);
        float rstd = rstds[index / heads.all * heads.normed + head];
        normalize_rms_backward(result, grad, x, by_kind.weights[head < heads.q ? 0 : 1], rstd,
                               heads.dim);
      }
      write_floats(call.outputs[0], index * heads.dim, heads.dim,
                   head < heads.normed ? result : grad, false);
    }
  });
  return Status::ok();
}

Status cpu_qk_norm_backward_weight(const OpCall& call, TaskPool& pool) {
  const TensorView& in = call.inputs[1];
  const float* rstds = typed_data<float>(call.inputs[2]);
  float* grads[2] = {typed_data<float>(call.outputs[0]), typed_data<float>(call.outputs[1])};
  Heads heads(call);
  // Sums of the query heads' and the key heads' gradients lie side by side.
  sum_rows(
      pool, in.shape[0], 2 * heads.dim,
      [&](float* sums, int64_t row) {
        ScratchFrame frame;
        float* grad = frame.floats(heads.dim);
        float* x = frame.floats(heads.dim);
        for (int64_t head = 0; head < heads.normed; ++head) {
          int64_t element = (row * heads.all + head) * heads.dim;
          load_row(call.inputs[0], element, heads.dim, grad);
          load_row(in, element, heads.dim, x);
          vec::normalize_backward_weight(sums + (head < heads.q ? 0 : heads.dim), nullptr, grad, x,
                                         0.0f, rstds[row * heads.normed + head], heads.dim);
        }
      },
      [&](int64_t first, int64_t end, const float* totals) {
        int64_t split = std::clamp(heads.dim, first, end);
        if (first < split) vec::accumulate(grads[0] + first, totals + first, split - first);
        if (split < end) {
          vec::accumulate(grads[1] + split - heads.dim, totals + split, end - split);
        }
      });
  return Status::ok();
}

Status cpu_rotary(const OpCall& call, TaskPool& pool) {
  const TensorView& qkv = call.outputs[0];
  const float* cosines = typed_data<float>(call.inputs[0]);
  const float* sines = typed_data<float>(call.inputs[1]);
  Heads heads(call);
  int64_t half = heads.dim / 2;
  float sign = call.inverse ? -1.0f : 1.0f;
  for_tiles(pool, qkv.shape[0], kRowTile, [&](int64_t first, int64_t end) {
    ScratchFrame frame;
    float* x = frame.floats(heads.dim);
    float* result = frame.floats(heads.dim);
    for (int64_t row = first; row < end; ++row) {
      const float* cosine = cosines + row % call.sequence * half;
      const float* sine = sines + row % call.sequence * half;
      for (int64_t head = 0; head < heads.normed; ++head) {
        int64_t element = (row * heads.all + head) * heads.dim;
        load_row(qkv, element, heads.dim, x);
        for (int64_t i = 0; i < half; ++i) {
          result[i] = x[i] * cosine[i] - x[half + i] * sign * sine[i];
          result[half + i] = x[half + i] * cosine[i] + x[i] * sign * sine[i];
        }
        write_floats(qkv, element, heads.dim, result, false);
      }
    }
  });
  return Status::ok();
}

}  // namespace stagecoach
