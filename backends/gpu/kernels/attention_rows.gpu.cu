// What attention's backward pass takes from the rows of its result: numbers for its kernels, and
// the gradients of sinks.

#include "backends/gpu/kernels/reduction.gpu.h"

namespace stagecoach::attention_rows_kernels {

/// take(number of the row and head, sum of out * out_grad) for each row of each head, [R, H]. 16
/// lanes to a head of a row.
template <typename T, typename Take>
__device__ inline void for_row_products(const T* out, const T* out_grad, int64_t count, int64_t dim,
                                        const Take& take) {
  constexpr int kGroup = 16;
  bool wide = dim % kPack == 0 && all_aligned(out, out_grad);
  int64_t groups = static_cast<int64_t>(gridDim.x) * (blockDim.x / kGroup);
  int64_t group = static_cast<int64_t>(blockIdx.x) * (blockDim.x / kGroup) + threadIdx.x / kGroup;
  // Whole groups of lanes take part in the exchanges, also where the work ends in their middle.
  int64_t whole = (count + kLanes / kGroup - 1) / (kLanes / kGroup) * (kLanes / kGroup);
  for (int64_t i = group; i < whole; i += groups) {
    bool inside = i < count;
    float sum = 0.0f;
    auto add = [&](auto width, int64_t d) {
      float a[decltype(width)::value], b[decltype(width)::value];
      load_pack(out + i * dim + d, a);
      load_pack(out_grad + i * dim + d, b);
      for (int k = 0; k < decltype(width)::value; ++k) sum = fmaf(a[k], b[k], sum);
    };
    if (inside) for_packs(dim, wide, threadIdx.x % kGroup, kGroup, add);
    for (int distance = kGroup / 2; distance > 0; distance /= 2) sum += shuffle_xor(sum, distance);
    if (threadIdx.x % kGroup == 0 && inside) take(i, sum);
  }
}

/// What the backward kernels need: lse as an exponent of two, and the sum of out * out_grad times
/// the scores' scale. Both [H, R].
template <typename T>
__device__ inline void row_numbers(float* results, const T* out, const T* out_grad,
                                   const float* lse, int64_t rows, int64_t heads, int64_t dim,
                                   float scale) {
  for_row_products(out, out_grad, rows * heads, dim, [&](int64_t i, float sum) {
    int64_t place = i % heads * rows + i / heads;
    results[place] = lse[i] * 1.4426950408889634f;
    results[rows * heads + place] = sum * scale;
  });
}

/// terms[H, R]: what each row takes from its head's sink's gradient.
template <typename T>
__device__ inline void sink_terms(float* terms, const T* out_grad, const T* out, const float* lse,
                                  const T* sinks, int64_t rows, int64_t heads, int64_t dim) {
  for_row_products(out, out_grad, rows * heads, dim, [&](int64_t i, float sum) {
    float share = expf(to_float(sinks[i % heads]) - lse[i]);
    terms[i % heads * rows + i / heads] = share * sum;
  });
}

/// A block to a head: sinks_grad[head] -= its terms, a thread's in order, then the threads' sums.
extern "C" __global__ void __launch_bounds__(kRowThreads)
    attention_sink_sums(float* sinks_grad, const float* terms, int64_t rows, int64_t heads) {
  for (int64_t head = blockIdx.x; head < heads; head += gridDim.x) {
    float sum = 0.0f;
    for (int64_t row = threadIdx.x; row < rows; row += kRowThreads) sum += terms[head * rows + row];
    float total = block_sum(sum);
    if (threadIdx.x == 0) sinks_grad[head] -= total;
  }
}

#define STAGECOACH_ATTENTION_ROWS(T, NAME)                                             \
  extern "C" __global__ void attention_row_numbers_##NAME(                             \
      float* results, const T* out, const T* out_grad, const float* lse, int64_t rows, \
      int64_t heads, int64_t dim, float scale) {                                       \
    row_numbers(results, out, out_grad, lse, rows, heads, dim, scale);                 \
  }                                                                                    \
  extern "C" __global__ void attention_sink_terms_##NAME(                              \
      float* terms, const T* out_grad, const T* out, const float* lse, const T* sinks, \
      int64_t rows, int64_t heads, int64_t dim) {                                      \
    sink_terms(terms, out_grad, out, lse, sinks, rows, heads, dim);                    \
  }

STAGECOACH_FOR_STORAGE(STAGECOACH_ATTENTION_ROWS)

}  // namespace stagecoach::attention_rows_kernels
