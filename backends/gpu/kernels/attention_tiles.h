#pragma once

namespace stagecoach {

/// The kernels of attention, which differ in what they keep.
enum class AttentionPass { kForward, kKeys, kQueries };

/// Tiles of an attention kernel. Both the kernels and the host that launches them read this.
struct AttentionShape {
  int own_rows;       ///< a block's results are for these: queries, in kKeys keys
  int streamed_rows;  ///< of the tiles that stream past

  constexpr int threads() const { return own_rows * 2; }
};

/// `padded_dim` is 64, 128 or 256; `matrix_units`: a 16-bit type on an NVIDIA card.
constexpr AttentionShape attention_shape(int element_bytes, int padded_dim, AttentionPass pass,
                                         bool matrix_units) {
  bool backward = pass != AttentionPass::kForward;
  if (matrix_units) return {64, padded_dim == 256 ? 32 : 64};
  int rows = element_bytes == 2 ? 64 : 32;
  if (padded_dim == 256) rows /= 2;
  if (backward && padded_dim >= 128) rows = element_bytes == 2 ? rows / 2 : 16;
  return {rows, rows};
}

/// Bytes of shared memory of a block whose streamed tiles have `stages` places. Tiles come in twos:
/// keys and values, or queries and gradients of the result, which have two numbers a row.
constexpr int attention_shared_bytes(const AttentionShape& shape, int element_bytes, int padded_dim,
                                     AttentionPass pass, int stages) {
  int line = padded_dim * element_bytes;
  int own = shape.own_rows * line * (pass == AttentionPass::kForward ? 1 : 2);
  int streamed = stages * shape.streamed_rows * line * 2;
  if (pass == AttentionPass::kKeys) streamed += stages * shape.streamed_rows * 2 * 4;
  return own + streamed;
}

/// Columns of a key and value gradient that one block keeps in registers.
constexpr int attention_slice_columns(int padded_dim) {
  return padded_dim < 128 ? padded_dim : 128;
}

}  // namespace stagecoach
