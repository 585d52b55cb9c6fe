#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace stagecoach {

/// A matrix in storage, for block_product: element (i, j) is at data[i * stride + j], or at
/// data[j * stride + i] when transposed.
struct Matrix {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t stride = 0;
  bool transposed = false;

  /// The same matrix from element (row, column) on.
  Matrix at(int64_t row, int64_t column) const;
};

/// c[m,n] = a[m,k] * b[k,n] (+ c when `add_to`) in fp32 on the calling thread, by oneDNN: fp32 and,
/// where the processor has matrix instructions for it (AMX), bf16 operands as they are, others
/// converted to fp32.
/// The same shapes and strides give the same bits on every thread. Thread rule: any thread.
void block_product(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, float* c,
                   int64_t c_stride, bool add_to);

}  // namespace stagecoach
