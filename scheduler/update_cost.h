#pragma once

#include "core/dtype.h"
#include "memory/moments.h"
#include "scheduler/layer_profile.h"

namespace stagecoach {

/// What an update touches more for each parameter where rounds have been summed in fp32.
inline constexpr double kRoundSumBytesPerParameter = 4;
/// RoundPipe's updates: gradients copied to fp32 (8), Adam on fp32 (28), weights copied to 16 bits
/// (6); its released code, v0.1.2.
inline constexpr double kRoundPipeUpdateBytesPerParameter = 42;
/// Pieces in which RoundPipe uploads large parameters; same source.
inline constexpr ByteCount kRoundPipePieceBytes = 256 * kMiB;

/// Host memory that the update of one parameter touches in a step of `rounds`: its gradient read,
/// weight and moments read and written, and with fp16 what devices read written.
double update_bytes_per_parameter(DType dtype, int rounds, const MomentOptions& moments);

/// Sets what updates of 16-bit parameters take on a host whose threads touch `bytes_per_ns`.
void set_update_cost(StepSetup& setup, double bytes_per_parameter, double bytes_per_ns);

/// The step as RoundPipe's released code runs it, its stages apart (plan_by_roundpipe_rule): its
/// updates, gradients summed on the devices and sent in bursts, memory without activations and fp32
/// sums, which its planner does not know. All of its updates wait for the last gradient with
/// kBarrier, also the copies that it makes as gradients land.
StepSetup as_roundpipe_runs(StepSetup setup, double host_work_bytes_per_ns);

}  // namespace stagecoach
