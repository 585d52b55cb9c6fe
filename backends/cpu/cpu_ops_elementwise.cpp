#include "backends/cpu/cpu_op_families.h"
#include "backends/cpu/cpu_tensor.h"

namespace stagecoach {

namespace {

/// Elements of one task, and of one pass through the first-level cache.
constexpr int64_t kTask = 16 * 1024;
constexpr int64_t kPiece = 1024;

/// out[i] (+)= compute(a[i], b[i]) in pieces: compute(result, a, b, first, count); b is null when
/// the operand is none. A piece is read before it is written, so out may be a or b.
template <typename Compute>
void map_elements(TaskPool& pool, const TensorView& out, const TensorView& a, const TensorView& b,
                  bool add_to, const Compute& compute) {
  for_tiles(pool, out.element_count(), kTask, [&](int64_t task_first, int64_t task_end) {
    float a_scratch[kPiece];
    float b_scratch[kPiece];
    float result[kPiece];
    for (int64_t first = task_first; first < task_end; first += kPiece) {
      int64_t count = std::min(kPiece, task_end - first);
      const float* a_values = read_floats(a, first, count, a_scratch);
      const float* b_values = b.is_none() ? nullptr : read_floats(b, first, count, b_scratch);
      compute(result, a_values, b_values, first, count);
      write_floats(out, first, count, result, add_to);
    }
  });
}

}  // namespace

Status cpu_gelu_forward(const OpCall& call, TaskPool& pool) {
  map_elements(pool, call.outputs[0], call.inputs[0], TensorView(), false,
               [](float* result, const float* in, const float*, int64_t, int64_t count) {
                 vec::gelu(result, in, count);
               });
  return Status::ok();
}

Status cpu_gelu_backward(const OpCall& call, TaskPool& pool) {
  map_elements(pool, call.outputs[0], call.inputs[0], call.inputs[1], call.accumulate,
               [](float* result, const float* grad, const float* in, int64_t, int64_t count) {
                 vec::gelu_backward(result, grad, in, count);
               });
  return Status::ok();
}

Status cpu_add(const OpCall& call, TaskPool& pool) {
  map_elements(pool, call.outputs[0], call.inputs[0], call.inputs[1], false,
               [](float* result, const float* a, const float* b, int64_t, int64_t count) {
                 vec::add(result, a, b, count);
               });
  return Status::ok();
}

Status cpu_multiply(const OpCall& call, TaskPool& pool) {
  map_elements(pool, call.outputs[0], call.inputs[0], call.inputs[1], call.accumulate,
               [](float* result, const float* a, const float* b, int64_t, int64_t count) {
                 vec::multiply(result, a, b, count);
               });
  return Status::ok();
}

Status cpu_dropout(const OpCall& call, TaskPool& pool) {
  uint32_t threshold = dropout_threshold(call.drop_probability);
  float factor = 1.0f / (1.0f - call.drop_probability);
  map_elements(
      pool, call.outputs[0], call.inputs[0], call.inputs[1], call.accumulate,
      [&](float* result, const float* in, const float* residual, int64_t first, int64_t count) {
        if (call.drop_probability > 0.0f) {
          uint32_t words[kPiece];
          fill_random_words(call.key, static_cast<uint64_t>(first), count, words);
          vec::drop(result, in, words, threshold, factor, count);
        } else {
          std::copy_n(in, count, result);
        }
        if (residual != nullptr) vec::accumulate(result, residual, count);
      });
  return Status::ok();
}

Status cpu_accumulate(const OpCall& call, TaskPool& pool) {
  float* out = typed_data<float>(call.outputs[0]);
  const TensorView& in = call.inputs[0];
  for_tiles(pool, in.element_count(), kTask, [&](int64_t task_first, int64_t task_end) {
    float converted[kPiece];
    for (int64_t first = task_first; first < task_end; first += kPiece) {
      int64_t count = std::min(kPiece, task_end - first);
      vec::accumulate(out + first, read_floats(in, first, count, converted), count);
    }
  });
  return Status::ok();
}

Status cpu_convert(const OpCall& call, TaskPool& pool) {
  const TensorView& out = call.outputs[0];
  const TensorView& in = call.inputs[0];
  for_tiles(pool, in.element_count(), kTask, [&](int64_t task_first, int64_t task_end) {
    float converted[kPiece];
    for (int64_t first = task_first; first < task_end; first += kPiece) {
      int64_t count = std::min(kPiece, task_end - first);
      const float* values = read_floats(in, first, count, converted);
      vec::store(out.dtype, values, count, element_address(out, first));
    }
  });
  return Status::ok();
}

}  // namespace stagecoach
