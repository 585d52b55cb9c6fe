#pragma once

namespace stagecoach {

/// Tiles of the matrix product. Both the kernels and the host that launches them read this.
struct MatmulShape {
  int rows;
  int columns;
  int stage_bytes;  ///< of dynamic shared memory; 0: none
  int most_stages;
};

/// `matrix_units`: a 16-bit type on an NVIDIA card.
constexpr MatmulShape matmul_shape(bool matrix_units) {
  constexpr int kDepth = 64;
  if (matrix_units) return {128, 256, (128 + 256) * kDepth * 2, 4};
  return {128, 128, 0, 0};
}

}  // namespace stagecoach
