// The kernels that the conformance suite launches by name, and fills that copy engines cannot do.

#include "backends/gpu/kernels/element.gpu.h"

namespace stagecoach::device_tests_kernels {

extern "C" __global__ void fill_f32(float* out, int64_t count, float value) {
  for_grid_packs(count, false, [&](auto, int64_t index) { out[index] = value; });
}

extern "C" __global__ void axpy_f32(float* out, const float* in, int64_t count, float factor) {
  for_grid_packs(count, false, [&](auto, int64_t index) { out[index] += factor * in[index]; });
}

/// FNV-1a over words.
extern "C" __global__ void checksum_u32(uint32_t* out, const uint32_t* in, int64_t count) {
  if (blockIdx.x != 0 || threadIdx.x != 0) return;
  uint32_t hash = 2166136261u;
  for (int64_t i = 0; i < count; ++i) hash = (hash ^ in[i]) * 16777619u;
  *out = hash;
}

extern "C" __global__ void busy_wait(int64_t duration_ns) {
  int64_t end = device_time_ns() + duration_ns;
  while (device_time_ns() < end) {
  }
}

/// Repeats the `size` (1, 2, 4 or 8) low bytes of `pattern` over `count` elements.
extern "C" __global__ void fill_pattern(void* out, int64_t count, uint64_t pattern, int32_t size) {
  for_grid_packs(count, false, [&](auto, int64_t index) {
    if (size == 1) static_cast<uint8_t*>(out)[index] = static_cast<uint8_t>(pattern);
    if (size == 2) static_cast<uint16_t*>(out)[index] = static_cast<uint16_t>(pattern);
    if (size == 4) static_cast<uint32_t*>(out)[index] = static_cast<uint32_t>(pattern);
    if (size == 8) static_cast<uint64_t*>(out)[index] = pattern;
  });
}

}  // namespace stagecoach::device_tests_kernels
