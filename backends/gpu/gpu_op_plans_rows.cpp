#include "backends/gpu/gpu_op_plans.h"
#include "hal/square_sum.h"

namespace stagecoach {

namespace {

constexpr int64_t kThreads = GpuLaunchBuilder::kThreads;

/// Tiles of rows whose sums are added in order, for gradients of weights that all rows share.
struct RowTiles {
  explicit RowTiles(int64_t rows, int64_t most_tiles = 64)
      : tile(std::max(int64_t{32}, tiles_of(rows, most_tiles))), count(tiles_of(rows, tile)) {}
  int64_t tile;
  int64_t count;
};

/// out[c] += sums of column first + c of all tiles.
void add_sum_tiles(GpuLaunchBuilder& builder, const TensorView& out, ByteCount sums,
                   const RowTiles& tiles, int64_t stride, int64_t first, int64_t columns) {
  builder.launch("sum_tiles", tiles_of(columns, kThreads), 1, kThreads);
  builder.tensor(out).workspace(sums).integer(tiles.count).integer(stride).integer(first);
  builder.integer(columns);
}

/// The weight gradient of either norm; `means` is none for RMS norm.
void plan_norm_weight(const OpCall& call, GpuLaunchBuilder& builder, const TensorView& bias_grad,
                      const TensorView& means, const TensorView& rstds) {
  static constexpr StorageKernels kKernels = STAGECOACH_STORAGE_KERNELS("norm_weight_partials");
  const TensorView& in = call.inputs[1];
  int64_t rows = in.shape[0];
  int64_t columns = in.shape[1];
  int64_t width = bias_grad.is_none() ? columns : 2 * columns;
  RowTiles tiles(rows);
  ByteCount sums = builder.reserve(tiles.count * width * ByteCount{sizeof(float)});
  builder.launch(kKernels.of(in.dtype), tiles_of(columns, kThreads), tiles.count, kThreads);
  builder.workspace(sums).tensor(call.inputs[0]).tensor(in).tensor(means).tensor(rstds);
  builder.integer(rows).integer(columns).integer(tiles.tile).flag(!bias_grad.is_none());
  add_sum_tiles(builder, call.outputs[0], sums, tiles, width, 0, columns);
  if (!bias_grad.is_none()) add_sum_tiles(builder, bias_grad, sums, tiles, width, columns, columns);
}

void plan_norm_input(const OpCall& call, GpuLaunchBuilder& builder, const TensorView& means,
                     const TensorView& rstds) {
  static constexpr StorageKernels kKernels = STAGECOACH_STORAGE_KERNELS("norm_backward_input");
  const TensorView& in = call.inputs[1];
  builder.launch_walking(kKernels.of(in.dtype), in.shape[0]);
  builder.tensor(call.outputs[0]).tensor(call.inputs[0]).tensor(in).tensor(call.inputs[2]);
  builder.tensor(means).tensor(rstds).integer(in.shape[0]).integer(in.shape[1]);
  builder.flag(call.accumulate);
}

void plan_norm_forward(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kLayer = STAGECOACH_STORAGE_KERNELS("layer_norm_forward");
  static constexpr StorageKernels kRms = STAGECOACH_STORAGE_KERNELS("rms_norm_forward");
  const TensorView& in = call.inputs[0];
  const StorageKernels& kernels = call.kind == OpKind::kLayerNormForward ? kLayer : kRms;
  builder.launch_walking(kernels.of(in.dtype), in.shape[0]);
  for (const TensorView& output : call.outputs) builder.tensor(output);
  for (int i = 0; i < 3; ++i) builder.tensor(call.inputs[static_cast<size_t>(i)]);
  builder.integer(in.shape[0]).integer(in.shape[1]).real(call.epsilon);
}

}  // namespace

void add_id_check(GpuLaunchBuilder& builder, const TensorView& ids, int64_t least, int64_t limit) {
  builder.launch("check_rows", 1, 1, kThreads);
  builder.tensor(ids).integer(ids.shape[0]).integer(least).integer(limit).error_word();
}

void add_document_check(GpuLaunchBuilder& builder, const TensorView& starts, int64_t sequence) {
  if (starts.is_none()) return;
  builder.launch("check_document_starts", 1, 1, kThreads);
  builder.tensor(starts).integer(starts.shape[0]).integer(sequence).error_word();
}

void plan_embedding(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kForward = STAGECOACH_STORAGE_KERNELS("embedding_forward");
  static constexpr StorageKernels kBackward = STAGECOACH_STORAGE_KERNELS("embedding_backward");
  static constexpr StorageKernels kPositions = STAGECOACH_STORAGE_KERNELS("positions_backward");
  /// What the backward kernel gives a block: see embedding.gpu.cu.
  constexpr int64_t kColumnsOfBlock = 1024;
  constexpr int64_t kBuckets = 1024;
  if (call.kind == OpKind::kEmbeddingForward) {
    const TensorView& out = call.outputs[0];
    add_id_check(builder, call.inputs[0], 0, call.inputs[1].shape[0]);
    builder.launch_walking(kForward.of(out.dtype), out.shape[0]);
    builder.tensor(out).tensor(call.inputs[0]).tensor(call.inputs[1]).tensor(call.inputs[2]);
    builder.integer(out.shape[0]).integer(out.shape[1]).integer(call.inputs[1].shape[0]);
    builder.integer(call.sequence);
    return;
  }
  const TensorView& out_grad = call.inputs[0];
  const TensorView& table_grad = call.outputs[0];
  const TensorView& positions_grad = call.outputs[1];
  int64_t rows = out_grad.shape[0];
  int64_t columns = out_grad.shape[1];
  if (!table_grad.is_none()) {
    int64_t vocabulary = table_grad.shape[0];
    int64_t bucket = tiles_of(vocabulary, kBuckets);
    add_id_check(builder, call.inputs[1], 0, vocabulary);
    builder.launch(kBackward.of(out_grad.dtype), tiles_of(vocabulary, bucket),
                   tiles_of(columns, kColumnsOfBlock), kThreads);
    builder.tensor(table_grad).tensor(out_grad).tensor(call.inputs[1]).integer(rows);
    builder.integer(columns).integer(vocabulary).integer(bucket);
  }
  if (!positions_grad.is_none()) {
    builder.launch_elements(kPositions.of(out_grad.dtype), call.sequence * columns);
    builder.tensor(positions_grad).tensor(out_grad).integer(rows).integer(columns);
    builder.integer(call.sequence);
  }
}

void plan_norm(const OpCall& call, GpuLaunchBuilder& builder) {
  const auto& inputs = call.inputs;
  TensorView none;
  switch (call.kind) {
    case OpKind::kLayerNormBackwardInput:
      return plan_norm_input(call, builder, inputs[3], inputs[4]);
    case OpKind::kRmsNormBackwardInput:
      return plan_norm_input(call, builder, none, inputs[3]);
    case OpKind::kLayerNormBackwardWeight:
      return plan_norm_weight(call, builder, call.outputs[1], inputs[2], inputs[3]);
    case OpKind::kRmsNormBackwardWeight:
      return plan_norm_weight(call, builder, none, none, inputs[2]);
    default:
      return plan_norm_forward(call, builder);
  }
}

namespace {

void plan_qk_norm_weight(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kKernels = STAGECOACH_STORAGE_KERNELS("qk_norm_weight_partials");
  const TensorView& in = call.inputs[1];
  int64_t dim = call.head_dim;
  RowTiles tiles(in.shape[0], 512);
  ByteCount sums = builder.reserve(tiles.count * 2 * dim * ByteCount{sizeof(float)});
  builder.launch(kKernels.of(in.dtype), tiles_of(2 * dim, kThreads), tiles.count, kThreads);
  builder.workspace(sums).tensor(call.inputs[0]).tensor(in).tensor(call.inputs[2]);
  builder.integer(in.shape[0]).integer(call.heads).integer(call.kv_heads).integer(dim);
  builder.integer(tiles.tile);
  add_sum_tiles(builder, call.outputs[0], sums, tiles, 2 * dim, 0, dim);
  add_sum_tiles(builder, call.outputs[1], sums, tiles, 2 * dim, dim, dim);
}

}  // namespace

void plan_heads(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kRotary = STAGECOACH_STORAGE_KERNELS("rotary");
  static constexpr StorageKernels kForward = STAGECOACH_STORAGE_KERNELS("qk_norm_forward");
  static constexpr StorageKernels kBackward = STAGECOACH_STORAGE_KERNELS("qk_norm_backward_input");
  constexpr int64_t kHeadsOfBlock = kThreads / 32;
  if (call.kind == OpKind::kQkNormBackwardWeight) return plan_qk_norm_weight(call, builder);
  const TensorView& out = call.outputs[0];
  int64_t rows = out.shape[0];
  int64_t rotated = call.heads + call.kv_heads;
  if (call.kind == OpKind::kRotary) {
    builder.launch_elements(kRotary.of(out.dtype), rows * rotated * (call.head_dim / 2));
    builder.tensor(out).tensor(call.inputs[0]).tensor(call.inputs[1]).integer(rows);
    builder.integer(out.shape[1]).integer(rotated).integer(call.head_dim).integer(call.sequence);
    builder.real(call.inverse ? -1.0f : 1.0f);
    return;
  }
  bool forward = call.kind == OpKind::kQkNormForward;
  int64_t heads = rows * (rotated + call.kv_heads);
  builder.launch_walking((forward ? kForward : kBackward).of(out.dtype),
                         tiles_of(heads, kHeadsOfBlock));
  builder.tensor(out);
  if (forward) builder.tensor(call.outputs[1]);
  for (size_t i = 0; i < (forward ? 3 : 5); ++i) builder.tensor(call.inputs[i]);
  builder.integer(rows).integer(call.heads).integer(call.kv_heads).integer(call.head_dim);
  if (forward) builder.real(call.epsilon);
}

void plan_reduction(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kColumns = STAGECOACH_STORAGE_KERNELS("column_sum_partials");
  static constexpr StorageKernels kSquares = STAGECOACH_STORAGE_KERNELS("square_pieces");
  static constexpr StorageKernels kFinite = STAGECOACH_STORAGE_KERNELS("finite_counts");
  static constexpr StorageKernels kError = STAGECOACH_STORAGE_KERNELS("squared_error_forward");
  // As reduce.gpu.cu has them.
  constexpr int64_t kPiece = kSquarePieceElements;
  constexpr int64_t kPiecesOfBlock = 4;
  constexpr int64_t kSquareThreads = 128;
  const TensorView& in = call.inputs[0];
  int64_t count = in.element_count();
  if (call.kind == OpKind::kColumnSum) {
    RowTiles tiles(in.shape[0]);
    int64_t columns = in.shape[1];
    ByteCount sums = builder.reserve(tiles.count * columns * ByteCount{sizeof(float)});
    builder.launch(kColumns.of(in.dtype), tiles_of(columns, kThreads), tiles.count, kThreads);
    builder.workspace(sums).tensor(in).integer(in.shape[0]).integer(columns).integer(tiles.tile);
    add_sum_tiles(builder, call.outputs[0], sums, tiles, columns, 0, columns);
  } else if (call.kind == OpKind::kSumOfSquares) {
    int64_t pieces = tiles_of(count, kPiece);
    ByteCount sums = builder.reserve(pieces * ByteCount{sizeof(double)});
    builder.launch(kSquares.of(in.dtype), tiles_of(pieces, kPiecesOfBlock), 1, kSquareThreads);
    builder.workspace(sums).tensor(in).integer(count);
    builder.launch("sum_pieces", 1, 1, kThreads);
    builder.tensor(call.outputs[0]).workspace(sums).integer(pieces);
  } else if (call.kind == OpKind::kFiniteCheck) {
    // A thread adds up at most 2^12 elements at any size that fits a card, a block 2^20.
    int64_t blocks = std::clamp(tiles_of(count, kThreads * 64), int64_t{1}, int64_t{1} << 20);
    ByteCount counts = builder.reserve(blocks * ByteCount{sizeof(uint32_t)});
    builder.launch(kFinite.of(in.dtype), blocks, 1, kThreads);
    builder.workspace(counts).tensor(in).integer(count);
    builder.launch("sum_counts", 1, 1, 32);
    builder.tensor(call.outputs[0]).workspace(counts).integer(blocks);
  } else if (call.kind == OpKind::kChecksum) {
    builder.launch("checksum", 1, 1, kThreads);
    builder.tensor(call.outputs[0]).tensor(in).integer(in.size_bytes() / 4);
  } else {
    builder.launch_walking(kError.of(in.dtype), in.shape[0]);
    builder.tensor(call.outputs[0]).tensor(in).tensor(call.inputs[1]);
    builder.integer(in.shape[0]).integer(in.shape[1]);
  }
}

}  // namespace stagecoach
