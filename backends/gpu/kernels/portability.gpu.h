#pragma once

// The only file that knows which compiler reads the kernels: nvcc, hipcc, or a host compiler with
// the emulation of tests/kernels (which defines STAGECOACH_EMULATED_GPU and what is missing here).
#if defined(__HIP__)
#include <hip/hip_runtime.h>
#endif
#include <stdint.h>

/// Lanes that exchange values by shuffles. Wave64 hardware runs two such groups a wave.
constexpr int kLanes = 32;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 && !defined(STAGECOACH_EMULATED_GPU)
#define STAGECOACH_MATRIX_UNITS 1  ///< mma.sync, ldmatrix and cp.async; conversions to bf16
#else
#define STAGECOACH_MATRIX_UNITS 0
#endif
/// wgmma: products of 64 rows by four groups of lanes that read shared memory by themselves. Only
/// code for sm_90a has it.
#if STAGECOACH_MATRIX_UNITS && defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define STAGECOACH_WARPGROUP_UNITS 1
#else
#define STAGECOACH_WARPGROUP_UNITS 0
#endif

/// Whether kernels take the shapes made for matrix units: the same for every NVIDIA card, so that
/// the host need not know which code the driver chose.
#if defined(__HIP__) || defined(STAGECOACH_EMULATED_GPU)
constexpr bool kMatrixUnitShapes = false;
#else
constexpr bool kMatrixUnitShapes = true;
#endif

#if !defined(STAGECOACH_EMULATED_GPU)
/// Shared memory whose size the launch gives.
#define STAGECOACH_DYNAMIC_SHARED(name) extern __shared__ __align__(1024) unsigned char name[]

#if defined(__HIP__)
/// `value` of the lane whose number differs by `mask`.
__device__ inline float shuffle_xor(float value, int mask) {
  return __shfl_xor(value, mask, kLanes);
}
/// `value` of the lane `distance` below.
__device__ inline int shuffle_up(int value, int distance) {
  return __shfl_up(value, distance, kLanes);
}
/// Orders shared memory between the lanes of a group, which run in lockstep here.
__device__ inline void lanes_sync() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}
/// Tells the compiler that all lanes have the same.
__device__ inline int same_in_lanes(int value) {
  return value;
}
__device__ inline bool any_lane(bool value) {
  for (int mask = 1; mask < kLanes; mask *= 2) value |= shuffle_xor(value ? 1.0f : 0.0f, mask) > 0;
  return value;
}
__device__ inline float exp2_fast(float value) {
  return exp2f(value);
}
/// Ticks of the constant clock: 10 ns on most cards, longer on the oldest.
__device__ inline int64_t device_time_ns() {
  return static_cast<int64_t>(__builtin_amdgcn_s_memrealtime()) * 10;
}
#else
/// `value` of the lane whose number differs by `mask`.
__device__ inline float shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask, kLanes);
}
/// `value` of the lane `distance` below.
__device__ inline int shuffle_up(int value, int distance) {
  return __shfl_up_sync(0xffffffffu, value, distance, kLanes);
}
/// Orders shared memory between the lanes of a group.
__device__ inline void lanes_sync() {
  __syncwarp();
}
/// A `value` that all lanes of a group hold, told to the compiler where that helps.
__device__ inline int same_in_lanes(int value) {
  return __shfl_sync(0xffffffffu, value, 0);
}
/// Whether `value` is true in any lane of the group.
__device__ inline bool any_lane(bool value) {
  return __any_sync(0xffffffffu, value) != 0;
}
/// Two units in the last place; results below 2^-126 are zero.
__device__ inline float exp2_fast(float value) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
  return result;
}
__device__ inline int64_t device_time_ns() {
  int64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}
#endif
#endif
