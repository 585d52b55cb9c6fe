#pragma once

// The parts of CUDA C++ that the kernels use, for a host compiler. Included before the kernels.

#include <cmath>
#include <cstdint>
#include <cstring>

#define STAGECOACH_EMULATED_GPU 1
#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

namespace stagecoach::emulation {

struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

/// Of the thread that runs now.
extern Extent thread_index, block_index, block_size, grid_size;
extern unsigned char* shared_memory;

/// Returns when all threads of the block, or of the 32 lanes, that have not ended have called it.
void block_barrier();
void lanes_barrier();
/// Offers `value` to the lanes and returns what lane `lane` offers.
uint32_t exchange(uint32_t value, unsigned lane);

inline float exchange_float(float value, unsigned lane) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits = exchange(bits, lane);
  std::memcpy(&value, &bits, sizeof(bits));
  return value;
}

}  // namespace stagecoach::emulation

#define threadIdx stagecoach::emulation::thread_index
#define blockIdx stagecoach::emulation::block_index
#define blockDim stagecoach::emulation::block_size
#define gridDim stagecoach::emulation::grid_size
#define STAGECOACH_DYNAMIC_SHARED(name) unsigned char* name = stagecoach::emulation::shared_memory

inline void __syncthreads() {
  stagecoach::emulation::block_barrier();
}
inline void lanes_sync() {
  stagecoach::emulation::lanes_barrier();
}
inline float shuffle_xor(float value, int mask) {
  return stagecoach::emulation::exchange_float(value,
                                               threadIdx.x % 32 ^ static_cast<unsigned>(mask));
}
inline int shuffle_up(int value, int distance) {
  unsigned lane = threadIdx.x % 32;
  unsigned from =
      lane < static_cast<unsigned>(distance) ? lane : lane - static_cast<unsigned>(distance);
  return static_cast<int>(stagecoach::emulation::exchange(static_cast<uint32_t>(value), from));
}
inline int same_in_lanes(int value) {
  return value;
}
inline bool any_lane(bool value) {
  for (int mask = 1; mask < 32; mask *= 2) value |= shuffle_xor(value ? 1.0f : 0.0f, mask) > 0;
  return value;
}
inline float exp2_fast(float value) {
  return std::exp2(value);
}
inline int64_t device_time_ns() {
  static int64_t time = 0;
  return time += 1000;
}
