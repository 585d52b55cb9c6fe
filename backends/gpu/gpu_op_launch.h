#pragma once

#include "backends/gpu/gpu_launch_plan.h"
#include "core/status.h"
#include "hal/op_call.h"

namespace stagecoach {

/// The launches of backends/gpu/kernels that compute a validated call: a pure function of the call
/// and of `arch`, for every OpKind. Workspace is bounded whatever the shape: the largest part holds
/// the logits of some rows, within two thirds of GpuArch::scratch_bytes (but those of 8 at least);
/// other ops take 8 bytes a row and head, or some sums a column.
/// Errors: unimplemented for what no kernel serves (attention heads wider than 256, or whose tiles
/// do not fit the card's shared memory), naming what.
/// Thread rule: any thread.
Result<GpuLaunchPlan> plan_op(const OpCall& call, const GpuArch& arch);

}  // namespace stagecoach
