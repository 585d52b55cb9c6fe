#include "backends/gpu/gpu_library_work.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/bytes.h"

namespace stagecoach {

namespace {

int alignment_of(uint64_t address) {
  constexpr uint64_t kMost = 16;
  uint64_t lowest_bit = address & (~address + 1);
  return static_cast<int>(address == 0 ? kMost : std::min(lowest_bit, kMost));
}

uint64_t matrix_address(const GpuMatrix& matrix, int64_t round, uint64_t workspace) {
  return matrix.address + (matrix.is_in_workspace ? workspace : 0) +
         static_cast<uint64_t>(matrix.step * round);
}

int64_t extent(int64_t most, int64_t total, int64_t round) {
  return total == 0 ? most : std::min(most, total - round * most);
}

}  // namespace

GpuProductRound product_round(const GpuProduct& product, int64_t round, uint64_t workspace) {
  GpuProductRound result;
  result.operands.out = matrix_address(product.out, round, workspace);
  result.operands.a = matrix_address(product.a, round, workspace);
  result.operands.b = matrix_address(product.b, round, workspace);
  result.operands.bias = product.bias;
  result.operands.alpha = product.alpha;
  GpuProductShape& shape = result.shape;
  shape.dtype = product.dtype;
  shape.out_dtype = product.out_dtype;
  shape.transpose_a = product.transpose_a;
  shape.transpose_b = product.transpose_b;
  shape.accumulate = product.accumulate;
  shape.has_bias = product.bias != 0;
  shape.is_scaled = product.alpha != 1.0f;
  shape.m = extent(product.m, product.m_total, round);
  shape.n = product.n;
  shape.k = extent(product.k, product.k_total, round);
  shape.out_stride = product.out.stride;
  shape.a_stride = product.a.stride;
  shape.b_stride = product.b.stride;
  shape.out_alignment = alignment_of(result.operands.out);
  shape.a_alignment = alignment_of(result.operands.a);
  shape.b_alignment = alignment_of(result.operands.b);
  shape.bias_alignment = alignment_of(result.operands.bias);
  return result;
}

std::string describe(const GpuProductShape& shape) {
  return fmt::format("{} [{}, {}]{} x [{}, {}]{}{} to {}", dtype_name(shape.dtype), shape.m,
                     shape.k, shape.transpose_a ? " (transposed)" : "", shape.k, shape.n,
                     shape.transpose_b ? " (transposed)" : "", shape.has_bias ? " + bias" : "",
                     dtype_name(shape.out_dtype));
}

std::string describe(const GpuAttentionShape& shape) {
  return fmt::format("{}, {} sequences of {}, {} heads over {}, {} wide", dtype_name(shape.dtype),
                     shape.batch, shape.sequence, shape.heads, shape.kv_heads, shape.head_dim);
}

}  // namespace stagecoach
