// AdamW with fp32 state: hal/adamw_element.h's update, factors computed on the host; and split
// masters to fp32 and back.

#include "backends/gpu/kernels/separate_rounding.gpu.h"

namespace stagecoach::optimizer_kernels {

struct AdamWFactors {
  float beta1, one_minus_beta1;
  float beta2, one_minus_beta2;
  float gradient_scale;
  float epsilon;
  float keep;
  float step_size;
  float second_correction;
};

/// The bits of update_adamw_element.
__device__ inline void update_element(const AdamWFactors& factors, float gradient, float& parameter,
                                      float& first_moment, float& second_moment) {
  float scaled = separate_product(flushed(gradient), factors.gradient_scale);
  float first = separate_sum(separate_product(factors.beta1, flushed(first_moment)),
                             separate_product(factors.one_minus_beta1, scaled));
  float square = separate_product(separate_product(factors.one_minus_beta2, scaled), scaled);
  float second = separate_sum(separate_product(factors.beta2, flushed(second_moment)), square);
  float scale =
      separate_sum(separate_product(sqrtf(second), factors.second_correction), factors.epsilon);
  float step = flushed(separate_product(factors.step_size, first) / scale);
  parameter = separate_sum(separate_product(flushed(parameter), factors.keep), -step);
  first_moment = first;
  second_moment = second;
}

template <typename T>
__device__ inline void update(float* parameters, float* first_moment, float* second_moment,
                              const T* gradients, int64_t count, const AdamWFactors& factors) {
  bool wide = all_aligned(parameters, first_moment, second_moment, gradients);
  for_grid_packs(count, wide, [&](auto width, int64_t index) {
    constexpr int kWidth = decltype(width)::value;
    float parameter[kWidth];
    float first[kWidth];
    float second[kWidth];
    float gradient[kWidth];
    load_pack(parameters + index, parameter);
    load_pack(first_moment + index, first);
    load_pack(second_moment + index, second);
    load_pack(gradients + index, gradient);
    for (int i = 0; i < kWidth; ++i) {
      update_element(factors, gradient[i], parameter[i], first[i], second[i]);
    }
    store_pack(first_moment + index, first);
    store_pack(second_moment + index, second);
    store_pack(parameters + index, parameter);
  });
}

#define STAGECOACH_OPTIMIZER(T, NAME)                                                              \
  extern "C" __global__ void adamw_##NAME(                                                         \
      float* parameters, float* first_moment, float* second_moment, const T* gradients,            \
      int64_t count, float beta1, float one_minus_beta1, float beta2, float one_minus_beta2,       \
      float gradient_scale, float epsilon, float keep, float step_size, float second_correction) { \
    update(parameters, first_moment, second_moment, gradients, count,                              \
           AdamWFactors{beta1, one_minus_beta1, beta2, one_minus_beta2, gradient_scale, epsilon,   \
                        keep, step_size, second_correction});                                      \
  }

STAGECOACH_FOR_STORAGE(STAGECOACH_OPTIMIZER)

extern "C" __global__ void join_master(float* master, const uint16_t* high,
                                       const int16_t* remainder, int64_t count) {
  int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < count; i += threads) {
    uint32_t bits = static_cast<uint32_t>(high[i]) << 16;
    master[i] = float_of(bits + static_cast<uint32_t>(static_cast<int32_t>(remainder[i])));
  }
}

extern "C" __global__ void split_master(uint16_t* high, int16_t* remainder, const float* master,
                                        int64_t count) {
  int64_t threads = static_cast<int64_t>(gridDim.x) * blockDim.x;
  int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < count; i += threads) {
    uint32_t bits = bits_of(master[i]);
    high[i] = static_cast<uint16_t>((bits + 0x8000u) >> 16);
    remainder[i] = static_cast<int16_t>(bits & 0xffffu);
  }
}

}  // namespace stagecoach::optimizer_kernels
