// Layer norm and RMS norm. A block of kRowThreads to a row; any grid.

#include "backends/gpu/kernels/reduction.gpu.h"

namespace stagecoach::norm_kernels {

/// body(width, first column, base index) over the packs of one row, shared out over the block.
template <typename Body>
__device__ inline void for_row(int64_t columns, bool wide, const Body& body) {
  for_packs(columns, wide, threadIdx.x, blockDim.x, body);
}

template <typename T>
__device__ inline void layer_norm(T* out, float* means, float* rstds, const T* in, const T* weight,
                                  const T* bias, int64_t rows, int64_t columns, float epsilon) {
  bool wide = columns % kPack == 0 && all_aligned(out, in, weight, bias);
  float count = static_cast<float>(columns);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* source = in + row * columns;
    float sum = 0.0f;
    for_row(columns, wide, [&](auto width, int64_t first) {
      float x[decltype(width)::value];
      load_pack(source + first, x);
      for (float value : x) sum += value;
    });
    float mean = block_sum(sum) / count;
    float squares = 0.0f;
    for_row(columns, wide, [&](auto width, int64_t first) {
      float x[decltype(width)::value];
      load_pack(source + first, x);
      for (float value : x) squares += (value - mean) * (value - mean);
    });
    float rstd = 1.0f / sqrtf(block_sum(squares) / count + epsilon);
    for_row(columns, wide, [&](auto width, int64_t first) {
      constexpr int kWidth = decltype(width)::value;
      float x[kWidth];
      float w[kWidth];
      float b[kWidth] = {};
      load_pack(source + first, x);
      load_pack(weight + first, w);
      if (bias != nullptr) load_pack(bias + first, b);
      for (int i = 0; i < kWidth; ++i) x[i] = (x[i] - mean) * rstd * w[i] + b[i];
      store_pack(out + row * columns + first, x);
    });
    if (threadIdx.x == 0) {
      means[row] = mean;
      rstds[row] = rstd;
    }
  }
}

/// The input gradient of either norm; RMS norm has no means.
template <typename T>
__device__ inline void norm_backward(T* in_grad, const T* out_grad, const T* in, const T* weight,
                                     const float* means, const float* rstds, int64_t rows,
                                     int64_t columns, bool add_to) {
  bool wide = columns % kPack == 0 && all_aligned(in_grad, out_grad, in, weight);
  float count = static_cast<float>(columns);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    int64_t base = row * columns;
    float mean = means == nullptr ? 0.0f : means[row];
    float rstd = rstds[row];
    float sum = 0.0f;
    float product = 0.0f;
    for_row(columns, wide, [&](auto width, int64_t first) {
      constexpr int kWidth = decltype(width)::value;
      float g[kWidth];
      float x[kWidth];
      float w[kWidth];
      load_pack(out_grad + base + first, g);
      load_pack(in + base + first, x);
      load_pack(weight + first, w);
      for (int i = 0; i < kWidth; ++i) {
        sum += g[i] * w[i];
        product += g[i] * w[i] * ((x[i] - mean) * rstd);
      }
    });
    float mean_grad = means == nullptr ? 0.0f : block_sum(sum) / count;
    float mean_product = block_sum(product) / count;
    for_row(columns, wide, [&](auto width, int64_t first) {
      constexpr int kWidth = decltype(width)::value;
      float g[kWidth];
      float x[kWidth];
      float w[kWidth];
      load_pack(out_grad + base + first, g);
      load_pack(in + base + first, x);
      load_pack(weight + first, w);
      for (int i = 0; i < kWidth; ++i) {
        float normal = (x[i] - mean) * rstd;
        x[i] = rstd * (g[i] * w[i] - mean_grad - normal * mean_product);
      }
      write_pack(in_grad + base + first, x, add_to);
    });
  }
}

/// sums[tile] of out_grad * normal, then, for `with_bias`, of out_grad: the weight gradient's
/// parts. A thread to a column, blockIdx.y to a tile of `tile` rows.
template <typename T>
__device__ inline void norm_weight_partials(float* sums, const T* out_grad, const T* in,
                                            const float* means, const float* rstds, int64_t rows,
                                            int64_t columns, int64_t tile, bool with_bias) {
  int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  int64_t first = static_cast<int64_t>(blockIdx.y) * tile;
  int64_t end = first + tile < rows ? first + tile : rows;
  float weight_sum = 0.0f;
  float bias_sum = 0.0f;
#pragma unroll 4
  for (int64_t row = first; row < end; ++row) {
    float grad = to_float(out_grad[row * columns + column]);
    float mean = means == nullptr ? 0.0f : means[row];
    weight_sum += grad * ((to_float(in[row * columns + column]) - mean) * rstds[row]);
    bias_sum += grad;
  }
  int64_t stride = with_bias ? 2 * columns : columns;
  sums[blockIdx.y * stride + column] = weight_sum;
  if (with_bias) sums[blockIdx.y * stride + columns + column] = bias_sum;
}

/// RMS norm of in, or of sum_out = in + residual, rounded to storage first.
template <typename T>
__device__ inline void rms_norm(T* out, float* rstds, T* sum_out, const T* in, const T* weight,
                                const T* residual, int64_t rows, int64_t columns, float epsilon) {
  bool wide = columns % kPack == 0 && all_aligned(out, sum_out, in, weight, residual);
  float count = static_cast<float>(columns);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    int64_t base = row * columns;
    const T* source = residual == nullptr ? in : sum_out;
    float squares = 0.0f;
    for_row(columns, wide, [&](auto width, int64_t first) {
      constexpr int kWidth = decltype(width)::value;
      float x[kWidth];
      load_pack(in + base + first, x);
      if (residual != nullptr) {
        float more[kWidth];
        load_pack(residual + base + first, more);
        for (int i = 0; i < kWidth; ++i) x[i] += more[i];
        store_pack(sum_out + base + first, x);
        for (int i = 0; i < kWidth; ++i) x[i] = to_float(rounded<T>(x[i]));
      }
      for (float value : x) squares += value * value;
    });
    float rstd = 1.0f / sqrtf(block_sum(squares) / count + epsilon);
    for_row(columns, wide, [&](auto width, int64_t first) {
      constexpr int kWidth = decltype(width)::value;
      float x[kWidth];
      float w[kWidth];
      load_pack(source + base + first, x);
      load_pack(weight + first, w);
      for (int i = 0; i < kWidth; ++i) x[i] = x[i] * rstd * w[i];
      store_pack(out + base + first, x);
    });
    if (threadIdx.x == 0) rstds[row] = rstd;
  }
}

#define STAGECOACH_NORM(T, NAME)                                                                  \
  extern "C" __global__ void __launch_bounds__(kRowThreads)                                       \
      layer_norm_forward_##NAME(T* out, float* means, float* rstds, const T* in, const T* weight, \
                                const T* bias, int64_t rows, int64_t columns, float epsilon) {    \
    layer_norm(out, means, rstds, in, weight, bias, rows, columns, epsilon);                      \
  }                                                                                               \
  extern "C" __global__ void __launch_bounds__(kRowThreads) norm_backward_input_##NAME(           \
      T* in_grad, const T* out_grad, const T* in, const T* weight, const float* means,            \
      const float* rstds, int64_t rows, int64_t columns, int32_t add_to) {                        \
    norm_backward(in_grad, out_grad, in, weight, means, rstds, rows, columns, add_to != 0);       \
  }                                                                                               \
  extern "C" __global__ void norm_weight_partials_##NAME(                                         \
      float* sums, const T* out_grad, const T* in, const float* means, const float* rstds,        \
      int64_t rows, int64_t columns, int64_t tile, int32_t with_bias) {                           \
    norm_weight_partials(sums, out_grad, in, means, rstds, rows, columns, tile, with_bias != 0);  \
  }                                                                                               \
  extern "C" __global__ void __launch_bounds__(kRowThreads)                                       \
      rms_norm_forward_##NAME(T* out, float* rstds, T* sum_out, const T* in, const T* weight,     \
                              const T* residual, int64_t rows, int64_t columns, float epsilon) {  \
    rms_norm(out, rstds, sum_out, in, weight, residual, rows, columns, epsilon);                  \
  }

STAGECOACH_FOR_STORAGE(STAGECOACH_NORM)

}  // namespace stagecoach::norm_kernels
