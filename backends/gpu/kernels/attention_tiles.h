#pragma once

namespace stagecoach {

/// Rows of the query and key tiles of the attention kernels: as many as registers and 96 KiB (64
/// KiB on HIP targets) of shared memory hold. Both the kernels and the host that launches them read
/// this. `padded_dim` is 64, 128 or 256.
constexpr int attention_tile_rows(int element_bytes, int padded_dim, bool backward, bool is_hip) {
  int rows = element_bytes == 2 ? 64 : 32;
  if (padded_dim == 256) rows /= 2;
  if (!backward) return rows;
  if (is_hip && padded_dim >= 128 && element_bytes == 2) rows /= 2;
  if (padded_dim >= 128 && element_bytes == 4) rows = 16;
  return rows;
}

/// Bytes of shared memory of a block. Tiles of `padded_dim` columns, one of scores, all with lines
/// padded by 16 bytes; the backward pass has four instead of three and two numbers a query.
constexpr int attention_shared_bytes(int element_bytes, int padded_dim, int rows, bool backward) {
  int pad = 16 / element_bytes;
  int tiles = (backward ? 4 : 3) * rows * (padded_dim + pad) + rows * (rows + pad);
  return tiles * element_bytes + (backward ? 2 * rows * 4 : 0);
}

/// Columns of a key and value gradient that one block keeps in registers.
constexpr int attention_slice_columns(int padded_dim) {
  return padded_dim < 128 ? padded_dim : 128;
}

}  // namespace stagecoach
