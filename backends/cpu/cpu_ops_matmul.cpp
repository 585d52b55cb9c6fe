#include "backends/cpu/cpu_matmul.h"
#include "backends/cpu/cpu_op_families.h"
#include "backends/cpu/cpu_row_sums.h"
#include "backends/cpu/cpu_tensor.h"

namespace stagecoach {

namespace {

struct Tile {
  int64_t m;
  int64_t n;
};

/// Tiles of the result: as large as the packing of operands likes, small enough that several
/// threads have work. A function of the shape alone.
Tile choose_tile(int64_t m, int64_t n) {
  constexpr int64_t kLargest = 256;
  constexpr int64_t kSmallest = 64;
  constexpr int64_t kWantedTiles = 12;
  Tile tile{std::min(m, kLargest), std::min(n, kLargest)};
  while (divide_up(m, tile.m) * divide_up(n, tile.n) < kWantedTiles) {
    int64_t& larger = tile.m >= tile.n ? tile.m : tile.n;
    if (larger < 2 * kSmallest) break;
    larger = align_up(divide_up(larger, 2), 16);
  }
  return tile;
}

Matrix matrix_of(const TensorView& tensor, bool transposed) {
  return Matrix{tensor_data(tensor), tensor.dtype, tensor.shape[1], transposed};
}

}  // namespace

Status cpu_matmul(const OpCall& call, TaskPool& pool) {
  const TensorView& out = call.outputs[0];
  const TensorView& bias = call.inputs[2];
  Matrix a = matrix_of(call.inputs[0], call.transpose_a);
  Matrix b = matrix_of(call.inputs[1], call.transpose_b);
  int64_t m = out.shape[0];
  int64_t n = out.shape[1];
  int64_t k = call.inputs[0].shape[call.transpose_a ? 0 : 1];
  bool direct = out.dtype == DType::kF32;
  Tile tile = choose_tile(m, n);
  int64_t column_tiles = divide_up(n, tile.n);
  for_tiles(pool, divide_up(m, tile.m) * column_tiles, 1, [&](int64_t index, int64_t) {
    int64_t row = index / column_tiles * tile.m;
    int64_t column = index % column_tiles * tile.n;
    int64_t rows = std::min(tile.m, m - row);
    int64_t columns = std::min(tile.n, n - column);
    ScratchFrame frame;
    float* c = direct ? typed_data<float>(out) + row * n + column : frame.floats(rows * columns);
    int64_t stride = direct ? n : columns;
    block_product(rows, columns, k, a.at(row, 0), b.at(0, column), c, stride,
                  direct && call.accumulate);
    const float* offset =
        bias.is_none() ? nullptr : read_floats(bias, column, columns, frame.floats(columns));
    if (direct && offset == nullptr) return;
    for (int64_t i = 0; i < rows; ++i) {
      float* line = c + i * stride;
      if (offset != nullptr) vec::accumulate(line, offset, columns);
      if (!direct) write_floats(out, (row + i) * n + column, columns, line, call.accumulate);
    }
  });
  return Status::ok();
}

Status cpu_column_sum(const OpCall& call, TaskPool& pool) {
  const TensorView& in = call.inputs[0];
  float* out = typed_data<float>(call.outputs[0]);
  int64_t columns = in.shape[1];
  sum_rows(
      pool, in.shape[0], columns,
      [&](float* sums, int64_t row) {
        ScratchFrame frame;
        vec::accumulate(sums, read_floats(in, row * columns, columns, frame.floats(columns)),
                        columns);
      },
      [&](int64_t first, int64_t end, const float* totals) {
        vec::accumulate(out + first, totals + first, end - first);
      });
  return Status::ok();
}

}  // namespace stagecoach
