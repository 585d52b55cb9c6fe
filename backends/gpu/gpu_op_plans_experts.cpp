#include <fmt/format.h>
#include <limits>

#include "backends/gpu/gpu_op_plans.h"
#include "backends/gpu/kernels/matmul_tiles.h"

namespace stagecoach {

namespace {

constexpr int64_t kThreads = GpuLaunchBuilder::kThreads;
constexpr int64_t kGroupsOfBlock = kThreads / 32;

void plan_routing(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kForward = STAGECOACH_STORAGE_KERNELS("route_forward");
  static constexpr StorageKernels kBackward = STAGECOACH_STORAGE_KERNELS("route_backward");
  bool forward = call.kind == OpKind::kRouteForward;
  const TensorView& logits = call.inputs[forward ? 0 : 1];
  const TensorView& choices = forward ? call.outputs[0] : call.inputs[2];
  int64_t rows = logits.shape[0];
  builder.launch_walking((forward ? kForward : kBackward).of(logits.dtype),
                         tiles_of(rows, kGroupsOfBlock));
  builder.tensor(call.outputs[0]);
  if (forward) builder.tensor(call.outputs[1]);
  for (size_t i = 0; i < (forward ? 1 : 4); ++i) builder.tensor(call.inputs[i]);
  builder.integer(rows).integer(logits.shape[1]).integer(choices.shape[1]);
  builder.flag(call.over_chosen);
}

/// Blocks share out the rows of each sequence; every one finds out anew what its sequence chose.
Status plan_balance(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kForward = STAGECOACH_STORAGE_KERNELS("balance_forward");
  static constexpr StorageKernels kBackward = STAGECOACH_STORAGE_KERNELS("balance_backward");
  constexpr int64_t kRowsOfBlock = 64;
  constexpr int64_t kMostExperts = 8192;  // their pulls lie in shared memory
  bool forward = call.kind == OpKind::kBalanceForward;
  const TensorView& logits = call.inputs[0];
  int64_t rows = logits.shape[0], experts = logits.shape[1];
  int64_t parts = tiles_of(call.sequence, kRowsOfBlock);
  int64_t blocks = rows / call.sequence * parts;
  if (experts > kMostExperts || blocks > std::numeric_limits<int32_t>::max()) {
    return unimplemented(fmt::format(
        "a balance of {} experts over {} rows, more than a launch takes", experts, rows));
  }
  builder.launch((forward ? kForward : kBackward).of(logits.dtype), blocks, 1, kThreads,
                 experts * dtype_size_bytes(DType::kF32));
  builder.tensor(call.outputs[0]);
  for (size_t i = 0; i < 4; ++i) builder.tensor(call.inputs[i]);
  builder.integer(experts).integer(call.inputs[1].shape[0] / rows);
  builder.integer(call.sequence).integer(parts);
  if (!forward) builder.real(call.scale);
  return Status::ok();
}

void plan_group_rows(const OpCall& call, GpuLaunchBuilder& builder) {
  const TensorView& choices = call.inputs[0];
  int64_t experts = call.outputs[2].shape[0] - 1;
  builder.launch("group_rows", experts, 1, kThreads);
  for (const TensorView& output : call.outputs) builder.tensor(output);
  builder.tensor(choices).integer(choices.element_count()).integer(experts).error_word();
}

void plan_gather_rows(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kKernels = STAGECOACH_STORAGE_KERNELS("gather_rows");
  const TensorView& out = call.outputs[0];
  builder.launch_walking(kKernels.of(out.dtype), out.shape[0]);
  builder.tensor(out);
  for (size_t i = 0; i < 3; ++i) builder.tensor(call.inputs[i]);
  builder.integer(out.shape[0]).integer(out.shape[1]);
  builder.integer(out.shape[0] / call.inputs[0].shape[0]);
}

void plan_combine_rows(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kKernels = STAGECOACH_STORAGE_KERNELS("combine_rows");
  const TensorView& out = call.outputs[0];
  builder.launch_walking(kKernels.of(out.dtype), out.shape[0]);
  builder.tensor(out);
  for (size_t i = 0; i < 4; ++i) builder.tensor(call.inputs[i]);
  builder.integer(out.shape[0]).integer(out.shape[1]).integer(call.inputs[1].shape[1]);
  builder.flag(call.accumulate);
}

void plan_combine_backward(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kKernels = STAGECOACH_STORAGE_KERNELS("combine_backward");
  const TensorView& in = call.inputs[1];
  const TensorView& places = call.inputs[2];
  builder.launch_walking(kKernels.of(in.dtype), places.element_count());
  builder.tensor(call.outputs[0]).tensor(call.outputs[1]);
  for (const TensorView& input : call.inputs) builder.tensor(input);
  builder.integer(places.element_count()).integer(in.shape[1]).integer(places.shape[1]);
  builder.integer(call.inputs[5].shape[1]);
}

void plan_grouped_column_sum(const OpCall& call, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kKernels = STAGECOACH_STORAGE_KERNELS("grouped_column_sum");
  const TensorView& out = call.outputs[0];
  builder.launch(kKernels.of(call.inputs[0].dtype), tiles_of(out.shape[1], kThreads), out.shape[0],
                 kThreads);
  builder.tensor(out).tensor(call.inputs[0]).tensor(call.inputs[1]).integer(out.shape[1]);
}

Status launch_tiles(const GpuArch& arch, GpuLaunchBuilder& builder, std::string_view kernel,
                    const MatmulShape& shape, int64_t blocks) {
  if (blocks > std::numeric_limits<int32_t>::max()) {
    return unimplemented(
        fmt::format("a product over experts has {} tiles, more than a launch takes", blocks));
  }
  builder.launch(kernel, blocks, 1, kThreads,
                 matmul_stages(shape, arch.shared_bytes) * shape.stage_bytes);
  return Status::ok();
}

Status plan_grouped_matmul(const OpCall& call, const GpuArch& arch, GpuLaunchBuilder& builder) {
  static constexpr StorageKernels kForms[2] = {STAGECOACH_STORAGE_KERNELS("grouped_matmul_n"),
                                               STAGECOACH_STORAGE_KERNELS("grouped_matmul_t")};
  static constexpr StorageKernels kWeight = STAGECOACH_STORAGE_KERNELS("grouped_matmul_weight");
  const TensorView& out = call.outputs[0];
  const TensorView& a = call.inputs[0];
  const TensorView& b = call.inputs[1];
  MatmulShape shape = matmul_tile_shape(arch, a.dtype);
  if (call.kind == OpKind::kGroupedMatmulWeight) {
    int64_t tiles = tiles_of(out.shape[1], shape.rows) * tiles_of(out.shape[2], shape.columns);
    STAGECOACH_RETURN_IF_ERROR(
        launch_tiles(arch, builder, kWeight.of(a.dtype), shape, out.shape[0] * tiles));
    builder.tensor(out).tensor(a).tensor(b).tensor(call.inputs[2]);
    builder.integer(out.shape[1]).integer(out.shape[2]);
    return Status::ok();
  }
  // An expert's last tile may be begun only: at most one more for each than all rows have.
  int64_t experts = b.shape[0];
  int64_t row_tiles = tiles_of(a.shape[0], shape.rows) + experts;
  STAGECOACH_RETURN_IF_ERROR(launch_tiles(arch, builder,
                                          kForms[call.transpose_b ? 1 : 0].of(a.dtype), shape,
                                          row_tiles * tiles_of(out.shape[1], shape.columns)));
  builder.tensor(out).tensor(a).tensor(b).tensor(call.inputs[3]).tensor(call.inputs[2]);
  builder.integer(experts).integer(out.shape[1]).integer(a.shape[1]);
  return Status::ok();
}

}  // namespace

Status plan_experts(const OpCall& call, const GpuArch& arch, GpuLaunchBuilder& builder) {
  switch (call.kind) {
    case OpKind::kBalanceForward:
    case OpKind::kBalanceBackward:
      return plan_balance(call, builder);
    case OpKind::kGroupRows:
      plan_group_rows(call, builder);
      break;
    case OpKind::kGatherRows:
      plan_gather_rows(call, builder);
      break;
    case OpKind::kCombineRows:
      plan_combine_rows(call, builder);
      break;
    case OpKind::kCombineBackward:
      plan_combine_backward(call, builder);
      break;
    case OpKind::kGroupedColumnSum:
      plan_grouped_column_sum(call, builder);
      break;
    case OpKind::kGroupedMatmul:
    case OpKind::kGroupedMatmulWeight:
      return plan_grouped_matmul(call, arch, builder);
    default:
      plan_routing(call, builder);
  }
  return Status::ok();
}

}  // namespace stagecoach
