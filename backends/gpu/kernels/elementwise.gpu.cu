// Operations on each element by itself. Any grid and block.

#include "backends/gpu/kernels/random.gpu.h"

namespace stagecoach::elementwise_kernels {

/// GELU's (1 + tanh(u)) / 2, without cancellation where u is far below zero.
__device__ inline float gelu_gate(float x) {
  constexpr float kScale = 0.7978845608f;  // sqrt(2 / pi)
  float u = kScale * (x + 0.044715f * x * x * x);
  return 1.0f / (1.0f + expf(-2.0f * u));
}

__device__ inline float gelu_slope(float x) {
  constexpr float kScale = 0.7978845608f;
  float gate = gelu_gate(x);
  float slope = 2.0f * kScale * (1.0f + 3.0f * 0.044715f * x * x);
  return gate + x * gate * (1.0f - gate) * slope;
}

/// out = compute(in), one operand.
template <typename T, typename Compute>
__device__ inline void map_one(T* out, const T* in, int64_t count, const Compute& compute) {
  for_grid_packs(count, all_aligned(out, in), [&](auto width, int64_t first) {
    constexpr int kWidth = decltype(width)::value;
    float values[kWidth];
    load_pack(in + first, values);
    for (int i = 0; i < kWidth; ++i) values[i] = compute(values[i]);
    store_pack(out + first, values);
  });
}

/// out (+)= compute(a, b). out may be a or b.
template <typename T, typename Compute>
__device__ inline void map_two(T* out, const T* a, const T* b, int64_t count, bool add_to,
                               const Compute& compute) {
  for_grid_packs(count, all_aligned(out, a, b), [&](auto width, int64_t first) {
    constexpr int kWidth = decltype(width)::value;
    float left[kWidth];
    float right[kWidth];
    load_pack(a + first, left);
    load_pack(b + first, right);
    for (int i = 0; i < kWidth; ++i) left[i] = compute(left[i], right[i]);
    write_pack(out + first, left, add_to);
  });
}

/// The factors of dropout for elements `first` on: 0 or `factor`.
template <int Width>
__device__ inline void draw_factors(RandomStream stream, int64_t first, uint32_t threshold,
                                    float factor, float (&keep)[Width]) {
  uint64_t index = static_cast<uint64_t>(first);
  if constexpr (Width == 1) {
    uint32_t word = word_of(random_words(stream, index / 4), static_cast<int>(index % 4));
    keep[0] = word >= threshold ? factor : 0.0f;
  } else {
    for (int part = 0; part < Width / 4; ++part) {
      RandomWords block = random_words(stream, index / 4 + static_cast<uint64_t>(part));
      for (int i = 0; i < 4; ++i) {
        keep[part * 4 + i] = block.words[i] >= threshold ? factor : 0.0f;
      }
    }
  }
}

/// `drops` is 0 where the probability is: nothing is drawn then.
template <typename T>
__device__ inline void drop_elements(T* out, const T* in, const T* residual, int64_t count,
                                     RandomStream stream, uint32_t threshold, float factor,
                                     int32_t drops, bool add_to) {
  for_grid_packs(count, all_aligned(out, in, residual), [&](auto width, int64_t first) {
    constexpr int kWidth = decltype(width)::value;
    float values[kWidth];
    load_pack(in + first, values);
    if (drops != 0) {
      float keep[kWidth];
      draw_factors(stream, first, threshold, factor, keep);
      for (int i = 0; i < kWidth; ++i) values[i] = keep[i] == 0.0f ? 0.0f : values[i] * keep[i];
    }
    if (residual != nullptr) {
      float more[kWidth];
      load_pack(residual + first, more);
      for (int i = 0; i < kWidth; ++i) values[i] += more[i];
    }
    write_pack(out + first, values, add_to);
  });
}

template <typename Out, typename In>
__device__ inline void convert_elements(Out* out, const In* in, int64_t count, bool add_to) {
  for_grid_packs(count, all_aligned(out, in), [&](auto width, int64_t first) {
    constexpr int kWidth = decltype(width)::value;
    float values[kWidth];
    load_pack(in + first, values);
    write_pack(out + first, values, add_to);
  });
}

/// Numbers of a gated activation, as hal/op_call.h has them. NaN passes limits.
struct Gating {
  float alpha, limit, up_offset;

  __device__ float cut_gate(float gate) const { return gate > limit ? limit : gate; }
  __device__ float cut_up(float up) const {
    up = up > limit ? limit : up;
    return up < -limit ? -limit : up;
  }
  __device__ float sigmoid(float gate) const { return 1.0f / (1.0f + expf(-alpha * gate)); }
  __device__ float result(float gate, float up) const {
    gate = cut_gate(gate);
    return gate / (1.0f + expf(-alpha * gate)) * (cut_up(up) + up_offset);
  }
  /// gate and up become their gradients; what was cut off has none.
  __device__ void differentiate(float grad, float& gate, float& up) const {
    float cut = cut_gate(gate);
    float share = sigmoid(cut);
    float slope = share * (1.0f + alpha * cut * (1.0f - share));
    float gate_grad = gate > limit ? 0.0f : grad * (cut_up(up) + up_offset) * slope;
    up = up > limit || up < -limit ? 0.0f : grad * (cut * share);
    gate = gate_grad;
  }
};

/// For rows of `columns`; gate and up lie `stride` elements a row apart.
template <typename T>
__device__ inline void gated_silu(T* out, const T* gate, const T* up, int64_t rows, int64_t columns,
                                  int64_t stride, const Gating& gating) {
  bool wide = columns % kPack == 0 && stride % kPack == 0 && all_aligned(out, gate, up);
  for_grid_packs(rows * columns, wide, [&](auto width, int64_t first) {
    constexpr int kWidth = decltype(width)::value;
    int64_t source = first / columns * stride + first % columns;
    float values[kWidth];
    float factors[kWidth];
    load_pack(gate + source, values);
    load_pack(up + source, factors);
    for (int i = 0; i < kWidth; ++i) values[i] = gating.result(values[i], factors[i]);
    store_pack(out + first, values);
  });
}

template <typename T>
__device__ inline void gated_silu_backward(T* gate_grad, T* up_grad, const T* out_grad,
                                           const T* gate, const T* up, int64_t rows,
                                           int64_t columns, int64_t stride, const Gating& gating) {
  bool wide = columns % kPack == 0 && stride % kPack == 0 &&
              all_aligned(gate_grad, up_grad, out_grad, gate, up);
  for_grid_packs(rows * columns, wide, [&](auto width, int64_t first) {
    constexpr int kWidth = decltype(width)::value;
    int64_t source = first / columns * stride + first % columns;
    float grad[kWidth];
    float gates[kWidth];
    float ups[kWidth];
    load_pack(out_grad + first, grad);
    load_pack(gate + source, gates);
    load_pack(up + source, ups);
    for (int i = 0; i < kWidth; ++i) gating.differentiate(grad[i], gates[i], ups[i]);
    store_pack(gate_grad + source, gates);
    store_pack(up_grad + source, ups);
  });
}

/// The same for gates and ups in turn in one tensor, `count` of each: rows have no gaps then.
template <typename T>
__device__ inline void gated_pairs(T* out, const T* pairs, int64_t count, const Gating& gating) {
  for_grid_packs(count, all_aligned(out, pairs), [&](auto width, int64_t first) {
    constexpr int kWidth = decltype(width)::value;
    float results[kWidth];
    float both[2][kWidth];
    load_pack(pairs + 2 * first, both[0]);
    load_pack(pairs + 2 * first + kWidth, both[1]);
    const float* flat = both[0];
    for (int i = 0; i < kWidth; ++i) results[i] = gating.result(flat[2 * i], flat[2 * i + 1]);
    store_pack(out + first, results);
  });
}

template <typename T>
__device__ inline void gated_pairs_backward(T* pairs_grad, const T* out_grad, const T* pairs,
                                            int64_t count, const Gating& gating) {
  bool wide = all_aligned(pairs_grad, out_grad, pairs);
  for_grid_packs(count, wide, [&](auto width, int64_t first) {
    constexpr int kWidth = decltype(width)::value;
    float grad[kWidth];
    float both[2][kWidth];
    load_pack(out_grad + first, grad);
    load_pack(pairs + 2 * first, both[0]);
    load_pack(pairs + 2 * first + kWidth, both[1]);
    float* flat = both[0];
    for (int i = 0; i < kWidth; ++i) gating.differentiate(grad[i], flat[2 * i], flat[2 * i + 1]);
    store_pack(pairs_grad + 2 * first, both[0]);
    store_pack(pairs_grad + 2 * first + kWidth, both[1]);
  });
}

template <typename T>
__device__ inline void squared_error_grad(T* grad, const T* prediction, const float* target,
                                          int64_t count, float factor, bool add_to) {
  for_grid_packs(count, all_aligned(grad, prediction, target), [&](auto width, int64_t first) {
    constexpr int kWidth = decltype(width)::value;
    float values[kWidth];
    float wanted[kWidth];
    load_pack(prediction + first, values);
    load_pack(target + first, wanted);
    for (int i = 0; i < kWidth; ++i) values[i] = factor * (values[i] - wanted[i]);
    write_pack(grad + first, values, add_to);
  });
}

#define STAGECOACH_ELEMENTWISE(T, NAME)                                                            \
  extern "C" __global__ void gelu_forward_##NAME(T* out, const T* in, int64_t count) {             \
    map_one(out, in, count, [](float x) { return x * gelu_gate(x); });                             \
  }                                                                                                \
  extern "C" __global__ void gelu_backward_##NAME(T* in_grad, const T* out_grad, const T* in,      \
                                                  int64_t count, int32_t add_to) {                 \
    map_two(in_grad, out_grad, in, count, add_to != 0,                                             \
            [](float grad, float x) { return grad * gelu_slope(x); });                             \
  }                                                                                                \
  extern "C" __global__ void add_##NAME(T* out, const T* a, const T* b, int64_t count) {           \
    map_two(out, a, b, count, false, [](float x, float y) { return x + y; });                      \
  }                                                                                                \
  extern "C" __global__ void multiply_##NAME(T* out, const T* a, const T* b, int64_t count,        \
                                             int32_t add_to) {                                     \
    map_two(out, a, b, count, add_to != 0, [](float x, float y) { return x * y; });                \
  }                                                                                                \
  extern "C" __global__ void dropout_##NAME(T* out, const T* in, const T* residual, int64_t count, \
                                            uint64_t key, uint64_t counter, uint32_t threshold,    \
                                            float factor, int32_t drops, int32_t add_to) {         \
    drop_elements(out, in, residual, count, RandomStream{key, counter}, threshold, factor, drops,  \
                  add_to != 0);                                                                    \
  }                                                                                                \
  extern "C" __global__ void accumulate_##NAME(float* out, const T* in, int64_t count) {           \
    convert_elements(out, in, count, true);                                                        \
  }                                                                                                \
  extern "C" __global__ void convert_##NAME##_fp32(float* out, const T* in, int64_t count) {       \
    convert_elements(out, in, count, false);                                                       \
  }                                                                                                \
  extern "C" __global__ void convert_##NAME##_bf16(BF16* out, const T* in, int64_t count) {        \
    convert_elements(out, in, count, false);                                                       \
  }                                                                                                \
  extern "C" __global__ void convert_##NAME##_fp16(F16* out, const T* in, int64_t count) {         \
    convert_elements(out, in, count, false);                                                       \
  }                                                                                                \
  extern "C" __global__ void gated_silu_forward_##NAME(                                            \
      T* out, const T* gate, const T* up, int64_t rows, int64_t columns, int64_t stride,           \
      float alpha, float limit, float up_offset) {                                                 \
    gated_silu(out, gate, up, rows, columns, stride, Gating{alpha, limit, up_offset});             \
  }                                                                                                \
  extern "C" __global__ void gated_silu_backward_##NAME(                                           \
      T* gate_grad, T* up_grad, const T* out_grad, const T* gate, const T* up, int64_t rows,       \
      int64_t columns, int64_t stride, float alpha, float limit, float up_offset) {                \
    gated_silu_backward(gate_grad, up_grad, out_grad, gate, up, rows, columns, stride,             \
                        Gating{alpha, limit, up_offset});                                          \
  }                                                                                                \
  extern "C" __global__ void gated_pairs_forward_##NAME(                                           \
      T* out, const T* pairs, int64_t count, float alpha, float limit, float up_offset) {          \
    gated_pairs(out, pairs, count, Gating{alpha, limit, up_offset});                               \
  }                                                                                                \
  extern "C" __global__ void gated_pairs_backward_##NAME(                                          \
      T* pairs_grad, const T* out_grad, const T* pairs, int64_t count, float alpha, float limit,   \
      float up_offset) {                                                                           \
    gated_pairs_backward(pairs_grad, out_grad, pairs, count, Gating{alpha, limit, up_offset});     \
  }                                                                                                \
  extern "C" __global__ void squared_error_backward_##NAME(T* grad, const T* prediction,           \
                                                           const float* target, int64_t count,     \
                                                           float factor, int32_t add_to) {         \
    squared_error_grad(grad, prediction, target, count, factor, add_to != 0);                      \
  }

STAGECOACH_FOR_STORAGE(STAGECOACH_ELEMENTWISE)

}  // namespace stagecoach::elementwise_kernels
