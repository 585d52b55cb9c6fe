#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "core/check.h"
#include "core/dtype.h"
#include "hal/buffer.h"

namespace stagecoach {

/// Dimensions of a tensor, outermost first. At most four.
struct Shape {
  static constexpr int kMaxRank = 4;
  std::array<int64_t, kMaxRank> dims = {1, 1, 1, 1};
  int rank = 0;

  Shape() = default;
  Shape(std::initializer_list<int64_t> list) {
    STAGECOACH_CHECK(list.size() <= kMaxRank);
    for (int64_t dim : list) dims[rank++] = dim;
  }
  int64_t operator[](int axis) const { return dims[axis]; }
  int64_t element_count() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  friend bool operator==(const Shape&, const Shape&) = default;
};

/// A dense, row-major tensor inside a buffer. Does not own. Plain data.
struct TensorView {
  BufferView memory;
  DType dtype = DType::kF32;
  Shape shape;

  bool is_none() const { return memory.is_none(); }
  int64_t element_count() const { return shape.element_count(); }
  ByteCount size_bytes() const { return element_count() * dtype_size_bytes(dtype); }
};

}  // namespace stagecoach
