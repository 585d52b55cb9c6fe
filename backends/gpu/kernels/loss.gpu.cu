// Losses by rows, and the gradient of logits. The host passes logits a chunk of rows at a time.

#include "backends/gpu/kernels/reduction.gpu.h"

namespace stagecoach::loss_kernels {

constexpr int32_t kIgnored = -1;

/// grad = grad_scale * (softmax * (1 + 2 z_loss lse) - share), where a row's label has
/// `label_share` and others `other_share`, in storage; rows `stride` elements apart.
template <typename T>
__device__ inline void logit_grads(T* grad, const float* logits, const int32_t* labels,
                                   const float* lse, int64_t rows, int64_t most, int64_t vocabulary,
                                   int64_t stride, float grad_scale, float z_loss,
                                   float label_share, float other_share) {
  bool wide = stride % kPack == 0 && all_aligned(grad, logits);
  for (int64_t row = blockIdx.x; row < rows && row < most; row += gridDim.x) {
    int64_t label = labels[row];
    float row_lse = lse[row];
    float factor = 1.0f + 2.0f * z_loss * row_lse;
    for_packs(vocabulary, wide, threadIdx.x, blockDim.x, [&](auto width, int64_t first) {
      constexpr int kWidth = decltype(width)::value;
      float values[kWidth];
      load_pack(logits + row * stride + first, values);
      for (int k = 0; k < kWidth; ++k) {
        float share = label == first + k ? label_share : other_share;
        // Rounded once, so that a factor of 1 changes no bit.
        float slope = fmaf(expf(values[k] - row_lse), factor, -share);
        values[k] = label == kIgnored ? 0.0f : grad_scale * slope;
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
                       int64_t rows, int64_t most, int64_t vocabulary, int64_t stride, float z_loss,
                       float label_smoothing) {
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
    float logit_sum = 0.0f;
    if (label_smoothing > 0.0f) {
      for_packs(vocabulary, wide, threadIdx.x, blockDim.x, [&](auto width, int64_t first) {
        float values[decltype(width)::value];
        load_pack(line + first, values);
        for (float value : values) logit_sum += value;
      });
      logit_sum = block_sum(logit_sum);
    }
    int64_t label = labels[row];
    if (threadIdx.x == 0) {
      bool counts = label >= 0 && label < vocabulary;
      lse[row] = row_lse;
      float row_loss = counts ? row_lse - line[label] : 0.0f;
      if (counts && label_smoothing > 0.0f) {
        float smooth = row_lse - logit_sum / static_cast<float>(vocabulary);
        row_loss += label_smoothing * (smooth - row_loss);
      }
      if (counts && z_loss > 0.0f) row_loss += z_loss * row_lse * row_lse;
      loss[row] = row_loss;
    }
  }
}

#define STAGECOACH_LOSS(T, NAME)                                                               \
  extern "C" __global__ void logit_grads_##NAME(                                               \
      T* grad, const float* logits, const int32_t* labels, const float* lse, int64_t rows,     \
      int64_t most, int64_t vocabulary, int64_t stride, float grad_scale, float z_loss,        \
      float label_share, float other_share) {                                                  \
    logit_grads(grad, logits, labels, lse, rows, most, vocabulary, stride, grad_scale, z_loss, \
                label_share, other_share);                                                     \
  }                                                                                            \
  extern "C" __global__ void __launch_bounds__(kRowThreads) squared_error_forward_##NAME(      \
      float* loss, const T* prediction, const float* target, int64_t rows, int64_t columns) {  \
    squared_error(loss, prediction, target, rows, columns);                                    \
  }

STAGECOACH_FOR_STORAGE(STAGECOACH_LOSS)

}  // namespace stagecoach::loss_kernels
