#include "backends/cuda/cublaslt_parts.h"

#include "core/bytes.h"

namespace stagecoach {

namespace {

constexpr int64_t kMultiple = 8;

bool is_odd(int64_t extent) {
  return extent % kMultiple != 0 && extent > kMultiple;
}

/// Whether rows of a matrix start at multiples of 16 bytes.
bool has_aligned_rows(DType dtype, int64_t stride, int alignment) {
  constexpr ByteCount kAlignment = 16;
  return alignment == kAlignment && stride * dtype_size_bytes(dtype) % kAlignment == 0;
}

uint64_t bytes(DType dtype, int64_t elements) {
  return static_cast<uint64_t>(elements * dtype_size_bytes(dtype));
}

}  // namespace

ProductAxis cut_axis(const GpuProductShape& shape, int64_t least_terms) {
  if (shape.m * shape.n * shape.k < least_terms) return ProductAxis::kNone;
  const bool a_aligned = has_aligned_rows(shape.dtype, shape.a_stride, shape.a_alignment);
  const bool b_aligned = has_aligned_rows(shape.dtype, shape.b_stride, shape.b_alignment);
  const bool out_aligned = has_aligned_rows(shape.out_dtype, shape.out_stride, shape.out_alignment);
  if (!a_aligned || !b_aligned || !out_aligned) return ProductAxis::kNone;
  if (is_odd(shape.n)) return ProductAxis::kN;
  if (is_odd(shape.m) && shape.transpose_a) return ProductAxis::kM;
  if (is_odd(shape.k) && (!shape.transpose_a || shape.transpose_b)) return ProductAxis::kK;
  return ProductAxis::kNone;
}

GpuProductRound product_part(const GpuProductRound& whole, ProductAxis axis, int part) {
  GpuProductRound result = whole;
  GpuProductShape& shape = result.shape;
  GpuProductOperands& operands = result.operands;
  int64_t& extent = axis == ProductAxis::kM ? shape.m : axis == ProductAxis::kN ? shape.n : shape.k;
  const int64_t most = extent - extent % kMultiple;
  const bool is_rest = (part == 1) != (axis == ProductAxis::kK);
  extent = is_rest ? extent - most : most;
  const int64_t start = is_rest ? most : 0;
  const int64_t row = 1;  // along a row
  if (axis == ProductAxis::kM) {
    operands.a += bytes(shape.dtype, start * (shape.transpose_a ? row : shape.a_stride));
    operands.out += bytes(shape.out_dtype, start * shape.out_stride);
  } else if (axis == ProductAxis::kN) {
    operands.b += bytes(shape.dtype, start * (shape.transpose_b ? shape.b_stride : row));
    operands.out += bytes(shape.out_dtype, start);
    if (shape.has_bias) operands.bias += bytes(shape.dtype, start);
  } else {
    operands.a += bytes(shape.dtype, start * (shape.transpose_a ? shape.a_stride : row));
    operands.b += bytes(shape.dtype, start * (shape.transpose_b ? row : shape.b_stride));
    if (part == 0) {
      shape.has_bias = false;
    } else {
      shape.accumulate = true;
    }
  }
  return result;
}

}  // namespace stagecoach
