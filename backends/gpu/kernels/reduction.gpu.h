#pragma once

#include "backends/gpu/kernels/element.gpu.h"

namespace stagecoach {

/// Sum and maximum over the 32 lanes, the same in each of them.
__device__ inline float lanes_sum(float value) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
__device__ inline float lanes_max(float value) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
  return value;
}

constexpr int kRowThreads = 256;  ///< of the kernels that give a block to a row
constexpr int kRowGroups = kRowThreads / kLanes;

/// Sum over a block of kRowThreads, the same in each thread; a fixed tree.
__device__ inline float block_sum(float value) {
  __shared__ float groups[kRowGroups];
  value = lanes_sum(value);
  __syncthreads();
  if (threadIdx.x % kLanes == 0) groups[threadIdx.x / kLanes] = value;
  __syncthreads();
  float total = 0.0f;
  for (int i = 0; i < kRowGroups; ++i) total += groups[i];
  return total;
}

/// The largest `value` of the block, in every thread.
__device__ inline float block_max(float value) {
  __shared__ float groups[kRowGroups];
  value = lanes_max(value);
  __syncthreads();
  if (threadIdx.x % kLanes == 0) groups[threadIdx.x / kLanes] = value;
  __syncthreads();
  float maximum = groups[0];
  for (int i = 1; i < kRowGroups; ++i) maximum = fmaxf(maximum, groups[i]);
  return maximum;
}

}  // namespace stagecoach
