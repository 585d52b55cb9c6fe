#pragma once

#include <cstddef>
#include <vector>

#include "core/dtype.h"
#include "hal/tensor.h"

namespace stagecoach {

/// A dense tensor in ordinary host memory that the caller owns; the first dimension is the batch.
/// Read during the call only.
struct HostTensor {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  static HostTensor of(const std::vector<int32_t>& values, Shape shape) {
    return HostTensor{values.data(), DType::kI32, shape};
  }
  /// None where there are no values.
  static HostTensor of_any(const std::vector<int32_t>& values, Shape shape) {
    return values.empty() ? HostTensor{} : of(values, shape);
  }
  static HostTensor of(const std::vector<float>& values, Shape shape) {
    return HostTensor{values.data(), DType::kF32, shape};
  }
};

}  // namespace stagecoach
