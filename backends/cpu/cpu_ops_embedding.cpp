#include "backends/cpu/cpu_op_families.h"
#include "backends/cpu/cpu_tensor.h"

namespace stagecoach {

namespace {

constexpr int64_t kRowTile = 32;
/// Columns of one task of the backward pass. Rows are added in order whatever the tile is.
constexpr int64_t kColumnTile = 64;

/// grad[index(row)] += out_grad[row] for all rows in order, in parallel over columns.
template <typename Index>
void scatter_rows(TaskPool& pool, const TensorView& grad, const TensorView& out_grad,
                  const Index& index) {
  int64_t rows = out_grad.shape[0];
  int64_t columns = out_grad.shape[1];
  float* target = typed_data<float>(grad);
  for_tiles(pool, columns, kColumnTile, [&](int64_t first, int64_t end) {
    float converted[kColumnTile];
    for (int64_t row = 0; row < rows; ++row) {
      const float* source = read_floats(out_grad, row * columns + first, end - first, converted);
      vec::accumulate(target + index(row) * columns + first, source, end - first);
    }
  });
}

}  // namespace

Status cpu_embedding_forward(const OpCall& call, TaskPool& pool) {
  const TensorView& out = call.outputs[0];
  const TensorView& table = call.inputs[1];
  const TensorView& positions = call.inputs[2];
  const int32_t* ids = typed_data<int32_t>(call.inputs[0]);
  int64_t rows = out.shape[0];
  int64_t columns = out.shape[1];
  STAGECOACH_RETURN_IF_ERROR(check_ids(call, "ids", ids, rows, 0, table.shape[0]));
  for_tiles(pool, rows, kRowTile, [&](int64_t first, int64_t end) {
    ScratchFrame frame;
    float* token_scratch = frame.floats(columns);
    float* position_scratch = frame.floats(columns);
    float* sum = frame.floats(columns);
    for (int64_t row = first; row < end; ++row) {
      if (positions.is_none()) {
        std::copy_n(element_address(table, ids[row] * columns),
                    columns * dtype_size_bytes(out.dtype), element_address(out, row * columns));
        continue;
      }
      const float* token = read_floats(table, ids[row] * columns, columns, token_scratch);
      const float* position =
          read_floats(positions, row % call.sequence * columns, columns, position_scratch);
      vec::add(sum, token, position, columns);
      write_floats(out, row * columns, columns, sum, false);
    }
  });
  return Status::ok();
}

Status cpu_embedding_backward(const OpCall& call, TaskPool& pool) {
  const TensorView& table_grad = call.outputs[0];
  const TensorView& positions_grad = call.outputs[1];
  const TensorView& out_grad = call.inputs[0];
  const int32_t* ids = typed_data<int32_t>(call.inputs[1]);
  if (!table_grad.is_none()) {
    STAGECOACH_RETURN_IF_ERROR(
        check_ids(call, "ids", ids, out_grad.shape[0], 0, table_grad.shape[0]));
    scatter_rows(pool, table_grad, out_grad, [&](int64_t row) { return int64_t{ids[row]}; });
  }
  if (!positions_grad.is_none()) {
    scatter_rows(pool, positions_grad, out_grad, [&](int64_t row) { return row % call.sequence; });
  }
  return Status::ok();
}

}  // namespace stagecoach
