#pragma once

#include <algorithm>
#include <functional>

#include "backends/cpu/cpu_scratch.h"
#include "backends/cpu/cpu_vector.h"
#include "core/task_pool.h"
#include "hal/tensor.h"

namespace stagecoach {

/// First byte of a tensor; null for none. On this backend a device address is a host address.
inline std::byte* tensor_data(const TensorView& tensor) {
  if (tensor.is_none()) return nullptr;
  return reinterpret_cast<std::byte*>(tensor.memory.buffer->device_address()) +
         tensor.memory.offset;
}

/// The same as elements of type T.
template <typename T>
T* typed_data(const TensorView& tensor) {
  return reinterpret_cast<T*>(tensor_data(tensor));
}

/// Address of element number `index`.
inline std::byte* element_address(const TensorView& tensor, int64_t index) {
  return tensor_data(tensor) + index * dtype_size_bytes(tensor.dtype);
}

/// `count` elements from `first` on as fp32: in place when they are, else converted into `scratch`.
inline const float* read_floats(const TensorView& tensor, int64_t first, int64_t count,
                                float* scratch) {
  const std::byte* source = element_address(tensor, first);
  if (tensor.dtype == DType::kF32) return reinterpret_cast<const float*>(source);
  vec::load(tensor.dtype, source, count, scratch);
  return scratch;
}

/// Writes `values` as elements from `first` on, or adds them in fp32 and rounds once. `values` is
/// overwritten.
inline void write_floats(const TensorView& tensor, int64_t first, int64_t count, float* values,
                         bool add_to) {
  std::byte* target = element_address(tensor, first);
  if (!add_to) {
    vec::store(tensor.dtype, values, count, target);
  } else if (tensor.dtype == DType::kF32) {
    vec::accumulate(reinterpret_cast<float*>(target), values, count);
  } else {
    constexpr int64_t kPiece = 512;
    float old[kPiece];
    for (int64_t i = 0; i < count; i += kPiece) {
      int64_t size = std::min(kPiece, count - i);
      std::byte* piece = target + i * dtype_size_bytes(tensor.dtype);
      vec::load(tensor.dtype, piece, size, old);
      vec::accumulate(old, values + i, size);
      vec::store(tensor.dtype, old, size, piece);
    }
  }
}

/// Tiles of `size` that cover `count`.
inline int64_t divide_up(int64_t count, int64_t size) {
  return (count + size - 1) / size;
}

/// Runs body(first, end) for tiles of `tile` of [0, count), which the caller derives from shapes
/// alone.
template <typename Body>
void for_tiles(TaskPool& pool, int64_t count, int64_t tile, const Body& body) {
  auto run = [&](int64_t index) { body(index * tile, std::min(count, (index + 1) * tile)); };
  int64_t tiles = divide_up(count, tile);
  if (tiles == 1) return run(0);
  pool.parallel_for(tiles, std::ref(run));
}

}  // namespace stagecoach
