#pragma once

#include "backends/cpu/cpu_tensor.h"

namespace stagecoach {

/// out[c] += sum over rows, for gradients of weights shared by all rows. Rows are cut into tiles by
/// shape alone; `add_row(sums, row)` adds one row to a tile's `width` sums, and `finish(first, end,
/// totals)` receives them, tiles added in order. In parallel over tiles, then over columns.
template <typename AddRow, typename Finish>
void sum_rows(TaskPool& pool, int64_t rows, int64_t width, const AddRow& add_row,
              const Finish& finish) {
  constexpr int64_t kLeastRows = 64;
  constexpr int64_t kMostTiles = 64;
  constexpr int64_t kColumnTile = 512;
  int64_t tile = std::max(kLeastRows, divide_up(rows, kMostTiles));
  int64_t tiles = divide_up(rows, tile);
  ScratchFrame frame;
  float* partial = frame.floats(tiles * width);
  for_tiles(pool, rows, tile, [&](int64_t first, int64_t end) {
    float* sums = partial + first / tile * width;
    std::fill_n(sums, width, 0.0f);
    for (int64_t row = first; row < end; ++row) add_row(sums, row);
  });
  for_tiles(pool, width, kColumnTile, [&](int64_t first, int64_t end) {
    for (int64_t index = 1; index < tiles; ++index) {
      vec::accumulate(partial + first, partial + index * width + first, end - first);
    }
    finish(first, end, partial);
  });
}

}  // namespace stagecoach
