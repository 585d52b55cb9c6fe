#include "backends/cpu/cpu_matmul.h"
#include "backends/cpu/cpu_op_families.h"
#include "backends/cpu/cpu_tensor.h"

namespace stagecoach {

namespace {

constexpr int64_t kRowTile = 16;
/// Rows of one product. Fewer are padded to a multiple of kRowStep, so that products of whatever
/// sizes the choices give are of few kinds, which oneDNN prepares once.
constexpr int64_t kChunkRows = 128;
constexpr int64_t kRowStep = 16;
constexpr int64_t kColumnTile = 256;

/// Rows [first, first + rows) of one expert.
struct Chunk {
  int64_t expert, first, rows;
};

/// Cuts every expert's rows into chunks. Lives no longer than `frame`.
class ChunkTable {
 public:
  ChunkTable(const TensorView& offsets, int64_t rows, ScratchFrame& frame) {
    const int32_t* starts = typed_data<int32_t>(offsets);
    int64_t experts = offsets.shape[0] - 1;
    int64_t most = experts + divide_up(rows, kChunkRows);
    chunks_ = static_cast<Chunk*>(frame.bytes(most * ByteCount{sizeof(Chunk)}));
    for (int64_t e = 0; e < experts; ++e) {
      for (int64_t first = starts[e]; first < starts[e + 1]; first += kChunkRows) {
        chunks_[count_++] = {e, first, std::min(kChunkRows, starts[e + 1] - first)};
      }
    }
  }
  int64_t count() const { return count_; }
  const Chunk& operator[](int64_t index) const { return chunks_[index]; }

 private:
  Chunk* chunks_;
  int64_t count_ = 0;
};

/// Columns [column, column + columns) of `rows` rows of a tensor from `first` on, as a matrix of
/// `padded` rows: in place when nothing is missing, else a copy that ends in zeros.
Matrix padded_rows(const TensorView& tensor, int64_t first, int64_t rows, int64_t padded,
                   int64_t column, int64_t columns, ScratchFrame& frame) {
  int64_t stride = tensor.shape[1];
  if (rows == padded) {
    return Matrix{element_address(tensor, first * stride + column), tensor.dtype, stride, false};
  }
  ByteCount line = columns * dtype_size_bytes(tensor.dtype);
  auto* copy = static_cast<std::byte*>(frame.bytes(padded * line));
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(element_address(tensor, (first + row) * stride + column), line, copy + row * line);
  }
  std::fill_n(copy + rows * line, (padded - rows) * line, std::byte{0});
  return Matrix{copy, tensor.dtype, columns, false};
}

/// body(row, place) for every row of [R, K] and its places.
template <typename Body>
void for_rows(TaskPool& pool, int64_t rows, const Body& body) {
  for_tiles(pool, rows, kRowTile, [&](int64_t first, int64_t end) {
    for (int64_t row = first; row < end; ++row) body(row);
  });
}

}  // namespace

Status cpu_gather_rows(const OpCall& call, TaskPool& pool) {
  const TensorView& out = call.outputs[0];
  const TensorView& in = call.inputs[0];
  const int32_t* order = typed_data<int32_t>(call.inputs[1]);
  const float* weights = typed_data<float>(call.inputs[2]);
  int64_t columns = out.shape[1];
  int64_t choices = out.shape[0] / in.shape[0];
  ByteCount line = columns * dtype_size_bytes(out.dtype);
  for_rows(pool, out.shape[0], [&](int64_t place) {
    int64_t row = order[place] / choices;
    if (weights == nullptr) {
      std::copy_n(element_address(in, row * columns), line, element_address(out, place * columns));
      return;
    }
    ScratchFrame frame;
    float* scaled = frame.floats(columns);
    const float* values = read_floats(in, row * columns, columns, frame.floats(columns));
    vec::scale(scaled, values, weights[order[place]], columns);
    write_floats(out, place * columns, columns, scaled, false);
  });
  return Status::ok();
}

Status cpu_combine_rows(const OpCall& call, TaskPool& pool) {
  const TensorView& out = call.outputs[0];
  const TensorView& in = call.inputs[0];
  const int32_t* places = typed_data<int32_t>(call.inputs[1]);
  const float* weights = typed_data<float>(call.inputs[2]);
  const TensorView& residual = call.inputs[3];
  int64_t columns = out.shape[1];
  int64_t choices = call.inputs[1].shape[1];
  for_rows(pool, out.shape[0], [&](int64_t row) {
    ScratchFrame frame;
    float* sum = frame.floats(columns);
    float* scratch = frame.floats(columns);
    float* scaled = frame.floats(columns);
    std::fill_n(sum, columns, 0.0f);
    for (int64_t s = row * choices; s < (row + 1) * choices; ++s) {
      const float* values = read_floats(in, places[s] * columns, columns, scratch);
      if (weights != nullptr) vec::scale(scaled, values, weights[s], columns);
      vec::accumulate(sum, weights != nullptr ? scaled : values, columns);
    }
    if (!residual.is_none()) {
      vec::accumulate(sum, read_floats(residual, row * columns, columns, scratch), columns);
    }
    write_floats(out, row * columns, columns, sum, call.accumulate);
  });
  return Status::ok();
}

Status cpu_combine_backward(const OpCall& call, TaskPool& pool) {
  const TensorView& in_grad = call.outputs[0];
  auto* weights_grad = typed_data<float>(call.outputs[1]);
  const TensorView& product_grad = call.inputs[0];
  const TensorView& in = call.inputs[1];
  const TensorView& out_grad = call.inputs[4];
  const TensorView& bias = call.inputs[5];
  const int32_t* places = typed_data<int32_t>(call.inputs[2]);
  const float* weights = typed_data<float>(call.inputs[3]);
  const int32_t* choices = typed_data<int32_t>(call.inputs[6]);
  int64_t columns = in.shape[1];
  int64_t count = call.inputs[2].shape[1];
  for_rows(pool, call.inputs[2].element_count(), [&](int64_t s) {
    ScratchFrame frame;
    int64_t first = places[s] * columns;
    float* scaled = frame.floats(columns);
    const float* grad = read_floats(product_grad, first, columns, frame.floats(columns));
    const float* values = read_floats(in, first, columns, frame.floats(columns));
    float weight = weights[s];
    float sum = vec::dot(grad, values, columns);
    if (!bias.is_none()) {
      int64_t width = bias.shape[1];
      const float* offset = read_floats(bias, choices[s] * width, width, frame.floats(width));
      sum += vec::dot(offset, read_floats(out_grad, s / count * width, width, frame.floats(width)),
                      width);
    }
    vec::scale(scaled, grad, weight, columns);
    write_floats(in_grad, first, columns, scaled, false);
    weights_grad[s] = sum;
  });
  return Status::ok();
}

Status cpu_grouped_matmul(const OpCall& call, TaskPool& pool) {
  const TensorView& out = call.outputs[0];
  const TensorView& a = call.inputs[0];
  const TensorView& b = call.inputs[1];
  const TensorView& bias = call.inputs[3];
  int64_t n = out.shape[1];
  int64_t k = a.shape[1];
  ScratchFrame table_frame;
  ChunkTable chunks(call.inputs[2], a.shape[0], table_frame);
  int64_t tile = std::min(n, kColumnTile);
  int64_t column_tiles = divide_up(n, tile);
  Matrix experts{tensor_data(b), b.dtype, b.shape[2], call.transpose_b};
  for_tiles(pool, chunks.count() * column_tiles, 1, [&](int64_t index, int64_t) {
    const Chunk& chunk = chunks[index / column_tiles];
    int64_t column = index % column_tiles * tile;
    int64_t columns = std::min(tile, n - column);
    int64_t padded = align_up(chunk.rows, kRowStep);
    ScratchFrame frame;
    Matrix left = padded_rows(a, chunk.first, chunk.rows, padded, 0, k, frame);
    Matrix right = experts;
    right.data = element_address(b, chunk.expert * n * k);
    bool direct = out.dtype == DType::kF32 && padded == chunk.rows;
    float* c =
        direct ? typed_data<float>(out) + chunk.first * n + column : frame.floats(padded * columns);
    int64_t stride = direct ? n : columns;
    block_product(padded, columns, k, left, right.at(0, column), c, stride, false);
    const float* offset = bias.is_none() ? nullptr
                                         : read_floats(bias, chunk.expert * n + column, columns,
                                                       frame.floats(columns));
    if (direct && offset == nullptr) return;
    for (int64_t row = 0; row < chunk.rows; ++row) {
      float* line = c + row * stride;
      if (offset != nullptr) vec::accumulate(line, offset, columns);
      if (!direct) write_floats(out, (chunk.first + row) * n + column, columns, line, false);
    }
  });
  return Status::ok();
}

Status cpu_grouped_matmul_weight(const OpCall& call, TaskPool& pool) {
  const TensorView& out = call.outputs[0];
  const TensorView& a = call.inputs[0];
  const TensorView& b = call.inputs[1];
  const int32_t* starts = typed_data<int32_t>(call.inputs[2]);
  int64_t m = out.shape[1];
  int64_t n = out.shape[2];
  int64_t m_tile = std::min(m, kColumnTile);
  int64_t n_tile = std::min(n, kColumnTile);
  int64_t column_tiles = divide_up(n, n_tile);
  int64_t tiles = divide_up(m, m_tile) * column_tiles;
  for_tiles(pool, out.shape[0] * tiles, 1, [&](int64_t index, int64_t) {
    int64_t expert = index / tiles;
    int64_t row = index % tiles / column_tiles * m_tile;
    int64_t column = index % column_tiles * n_tile;
    int64_t rows = std::min(m_tile, m - row);
    int64_t columns = std::min(n_tile, n - column);
    float* c = typed_data<float>(out) + (expert * m + row) * n + column;
    // Chunks in order, each added to what is there.
    for (int64_t first = starts[expert]; first < starts[expert + 1]; first += kChunkRows) {
      int64_t depth = std::min(kChunkRows, starts[expert + 1] - first);
      int64_t padded = align_up(depth, kRowStep);
      ScratchFrame frame;
      Matrix left = padded_rows(a, first, depth, padded, row, rows, frame);
      Matrix right = padded_rows(b, first, depth, padded, column, columns, frame);
      left.transposed = true;
      block_product(rows, columns, padded, left, right, c, n, true);
    }
  });
  return Status::ok();
}

Status cpu_grouped_column_sum(const OpCall& call, TaskPool& pool) {
  const TensorView& in = call.inputs[0];
  const int32_t* starts = typed_data<int32_t>(call.inputs[1]);
  int64_t experts = call.outputs[0].shape[0];
  int64_t columns = in.shape[1];
  int64_t tile = std::min(columns, kColumnTile);
  int64_t column_tiles = divide_up(columns, tile);
  for_tiles(pool, experts * column_tiles, 1, [&](int64_t index, int64_t) {
    int64_t expert = index / column_tiles;
    int64_t column = index % column_tiles * tile;
    int64_t width = std::min(tile, columns - column);
    ScratchFrame frame;
    float* scratch = frame.floats(width);
    float* sums = frame.floats(width);
    std::fill_n(sums, width, 0.0f);
    for (int64_t row = starts[expert]; row < starts[expert + 1]; ++row) {
      vec::accumulate(sums, read_floats(in, row * columns + column, width, scratch), width);
    }
    vec::accumulate(typed_data<float>(call.outputs[0]) + expert * columns + column, sums, width);
  });
  return Status::ok();
}

}  // namespace stagecoach
