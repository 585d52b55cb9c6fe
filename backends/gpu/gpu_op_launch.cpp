#include "backends/gpu/gpu_op_launch.h"

#include "backends/gpu/gpu_op_plans.h"

namespace stagecoach {

namespace {

Status add_launches(const OpCall& call, const GpuArch& arch, GpuLaunchBuilder& builder) {
  switch (call.kind) {
    case OpKind::kEmbeddingForward:
    case OpKind::kEmbeddingBackward:
      plan_embedding(call, builder);
      break;
    case OpKind::kLayerNormForward:
    case OpKind::kLayerNormBackwardInput:
    case OpKind::kLayerNormBackwardWeight:
    case OpKind::kRmsNormForward:
    case OpKind::kRmsNormBackwardInput:
    case OpKind::kRmsNormBackwardWeight:
      plan_norm(call, builder);
      break;
    case OpKind::kRotary:
    case OpKind::kQkNormForward:
    case OpKind::kQkNormBackwardInput:
    case OpKind::kQkNormBackwardWeight:
      plan_heads(call, builder);
      break;
    case OpKind::kMatmul:
      return plan_matmul(call, arch, builder);
    case OpKind::kAttentionForward:
    case OpKind::kAttentionBackward:
    case OpKind::kAttentionSinkBackward:
      return plan_attention(call, arch, builder);
    case OpKind::kLinearCrossEntropyForward:
    case OpKind::kLinearCrossEntropyBackwardInput:
    case OpKind::kLinearCrossEntropyBackwardWeight:
      return plan_cross_entropy(call, arch, builder);
    case OpKind::kColumnSum:
    case OpKind::kSumOfSquares:
    case OpKind::kChecksum:
    case OpKind::kFiniteCheck:
    case OpKind::kSquaredErrorForward:
      plan_reduction(call, builder);
      break;
    case OpKind::kGeluForward:
    case OpKind::kGeluBackward:
    case OpKind::kAdd:
    case OpKind::kMultiply:
    case OpKind::kDropout:
    case OpKind::kSquaredErrorBackward:
    case OpKind::kAccumulate:
    case OpKind::kConvert:
    case OpKind::kGatedSiluForward:
    case OpKind::kGatedSiluBackward:
    case OpKind::kAdamW:
    case OpKind::kJoinMaster:
    case OpKind::kSplitMaster:
      plan_elementwise(call, builder);
      break;
    case OpKind::kRouteForward:
    case OpKind::kRouteBackward:
    case OpKind::kBalanceForward:
    case OpKind::kBalanceBackward:
    case OpKind::kGroupRows:
    case OpKind::kGatherRows:
    case OpKind::kCombineRows:
    case OpKind::kCombineBackward:
    case OpKind::kGroupedColumnSum:
    case OpKind::kGroupedMatmul:
    case OpKind::kGroupedMatmulWeight:
      return plan_experts(call, arch, builder);
  }
  return Status::ok();
}

}  // namespace

Result<GpuLaunchPlan> plan_op(const OpCall& call, const GpuArch& arch) {
  GpuLaunchPlan plan;
  GpuLaunchBuilder builder(plan);
  STAGECOACH_RETURN_IF_ERROR(add_launches(call, arch, builder));
  return plan;
}

}  // namespace stagecoach
