#pragma once

#include "backends/gpu/gpu_launch_builder.h"
#include "backends/gpu/kernels/matmul_tiles.h"
#include "core/status.h"
#include "hal/op_call.h"

namespace stagecoach {

/// The name of a kernel for each storage type.
struct StorageKernels {
  std::string_view fp32, bf16, fp16;

  std::string_view of(DType dtype) const {
    if (dtype == DType::kBF16) return bf16;
    return dtype == DType::kF16 ? fp16 : fp32;
  }
};

#define STAGECOACH_STORAGE_KERNELS(name)     \
  StorageKernels {                           \
    name "_fp32", name "_bf16", name "_fp16" \
  }

/// A matrix product out = alpha * op(a) * op(b) as the matmul kernels take it.
struct MatmulPart {
  DType dtype = DType::kF32;
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;  ///< most of one launch
  int64_t out_stride = 0, a_stride = 0, b_stride = 0;
  float alpha = 1.0f;
  bool out_is_fp32 = false;
  bool accumulate = false;
};

/// The matmul kernel for `part`. The caller gives the arguments in the kernel's order.
std::string_view matmul_kernel(const MatmulPart& part);
/// Begins its launch.
void launch_matmul(GpuLaunchBuilder& builder, const GpuArch& arch, const MatmulPart& part);

/// The tiles in which products of `dtype` are computed on `arch`.
MatmulShape matmul_tile_shape(const GpuArch& arch, DType dtype);

/// The two values by which kernels know a random stream, and what dropout compares words with.
void add_dropout_arguments(GpuLaunchBuilder& builder, const OpCall& call);

/// Reports the first of `ids` outside [least, limit).
void add_id_check(GpuLaunchBuilder& builder, const TensorView& ids, int64_t least, int64_t limit);

/// Reports the first row where a document neither begins nor goes on; nothing without `starts`.
void add_document_check(GpuLaunchBuilder& builder, const TensorView& starts, int64_t sequence);

/// Each appends the launches of its kinds; plan_op calls the one that serves the call's.
void plan_embedding(const OpCall& call, GpuLaunchBuilder& builder);
void plan_norm(const OpCall& call, GpuLaunchBuilder& builder);
void plan_heads(const OpCall& call, GpuLaunchBuilder& builder);
Status plan_matmul(const OpCall& call, const GpuArch& arch, GpuLaunchBuilder& builder);
Status plan_attention(const OpCall& call, const GpuArch& arch, GpuLaunchBuilder& builder);
void plan_elementwise(const OpCall& call, GpuLaunchBuilder& builder);
Status plan_cross_entropy(const OpCall& call, const GpuArch& arch, GpuLaunchBuilder& builder);
Status plan_experts(const OpCall& call, const GpuArch& arch, GpuLaunchBuilder& builder);
void plan_reduction(const OpCall& call, GpuLaunchBuilder& builder);

}  // namespace stagecoach
