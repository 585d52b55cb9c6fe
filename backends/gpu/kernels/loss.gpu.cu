// Losses by rows, and the gradient of logits. The host passes logits a chunk of rows at a time.

#include "backends/gpu/kernels/reduction.gpu.h"

namespace stagecoach::loss_kernels {

constexpr int32_t kIgnored = -1;

/// grad = grad_scale * (softmax - one of the label), in storage; rows `stride` elements apart.
template <typename T>
__device__ inline void logit_grads(T* grad, const float* logits, const int32_t* labels,
                                   const float* lse, int64_t rows, int64_t most, int64_t vocabulary,
                                   int64_t stride, float grad_scale) {
  bool wide = stride % kPack == 0 && all_aligned(grad, logits);
  for (int64_t row = blockIdx.x; row < rows && row < most; row += gridDim.x) {
    int64_t label = labels[row];
    float row_lse = lse[row];
    for_packs(vocabulary, wide, threadIdx.x, blockDim.x, [&](auto width, int64_t first) {
      constexpr int kWidth = decltype(width)::value;
      float values[kWidth];
      load_pack(logits + row * stride + first, values);
      for (int k = 0; k < kWidth; ++k) {
        float probability = expf(values[k] - row_lse) - (label == first + k ? 1.0f : 0.0f);
        values[k] = label == kIgnored ? 0.0f : grad_scale * probability;
      }
      store_pack(grad + row * stride + first, values);
    });
  }
}

template <typename T>
__device__ inline void squared_error(float* loss, const T* prediction, const float* target,
                                     int64_t rows, int64_t columns) {
  bool wide = columns % kPack == 0 && all_aligned(prediction, target);
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    float sum = 0.0f;
    for_packs(columns, wide, threadIdx.x, blockDim.x, [&](auto width, int64_t first) {
      constexpr int kWidth = decltype(width)::value;
      float values[kWidth];
      float wanted[kWidth];
      load_pack(prediction + row * columns + first, values);
      load_pack(target + row * columns + first, wanted);
      for (int i = 0; i < kWidth; ++i) {
        sum += (values[i] - wanted[i]) * (values[i] - wanted[i]);
      }
    });
    float total = block_sum(sum);
    if (threadIdx.x == 0) loss[row] = total / static_cast<float>(columns);
  }
}

/// loss and lse of a chunk's rows from their logits: of the `rows` that are left, `most`. A block
/// of kRowThreads to a row.
extern "C" __global__ void __launch_bounds__(kRowThreads)
    cross_entropy_rows(float* loss, float* lse, const float* logits, const int32_t* labels,
                       int64_t rows, int64_t most, int64_t vocabulary, int64_t stride) {
  bool wide = stride % kPack == 0 && all_aligned(logits);
  for (int64_t row = blockIdx.x; row < rows && row < most; row += gridDim.x) {
    const float* line = logits + row * stride;
    float maximum = -INFINITY;
    for_packs(vocabulary, wide, threadIdx.x, blockDim.x, [&](auto width, int64_t first) {
      float values[decltype(width)::value];
      load_pack(line + first, values);
      for (float value : values) maximum = fmaxf(maximum, value);
    });
    maximum = block_max(maximum);
    float sum = 0.0f;
    for_packs(vocabulary, wide, threadIdx.x, blockDim.x, [&](auto width, int64_t first) {
      float values[decltype(width)::value];
      load_pack(line + first, values);
      for (float value : values) sum += expf(value - maximum);
    });
    float row_lse = maximum + logf(block_sum(sum));
    int64_t label = labels[row];
    if (threadIdx.x == 0) {
      bool counts = label >= 0 && label < vocabulary;
      lse[row] = row_lse;
      loss[row] = counts ? row_lse - line[label] : 0.0f;
    }
  }
}

#define STAGECOACH_LOSS(T, NAME)                                                              \
  extern "C" __global__ void logit_grads_##NAME(                                              \
      T* grad, const float* logits, const int32_t* labels, const float* lse, int64_t rows,    \
      int64_t most, int64_t vocabulary, int64_t stride, float grad_scale) {                   \
    logit_grads(grad, logits, labels, lse, rows, most, vocabulary, stride, grad_scale);       \
  }                                                                                           \
  extern "C" __global__ void __launch_bounds__(kRowThreads) squared_error_forward_##NAME(     \
      float* loss, const T* prediction, const float* target, int64_t rows, int64_t columns) { \
    squared_error(loss, prediction, target, rows, columns);                                   \
  }

STAGECOACH_FOR_STORAGE(STAGECOACH_LOSS)

}  // namespace stagecoach::loss_kernels
