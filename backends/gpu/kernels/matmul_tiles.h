#pragma once

#include <stdint.h>

namespace stagecoach {

/// Tiles of the matrix product. Both the kernels and the host that launches them read this.
struct MatmulShape {
  int rows;
  int columns;
  int stage_bytes;  ///< of dynamic shared memory; 0: none
};

/// `matrix_units`: a 16-bit type on an NVIDIA card.
constexpr MatmulShape matmul_shape(bool matrix_units) {
  constexpr int kColumns = 256;
  constexpr int kDepth = 64;
  if (matrix_units) return {128, kColumns, (128 + kColumns) * kDepth * 2};
  return {128, 128, 0};
}

/// Stages that tiles of K pass through, given a block's most shared memory.
constexpr int64_t matmul_stages(const MatmulShape& shape, int64_t shared_bytes) {
  return shape.stage_bytes == 0 ? 0 : shared_bytes / shape.stage_bytes;
}

}  // namespace stagecoach
