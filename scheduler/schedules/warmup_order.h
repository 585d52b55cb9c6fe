#pragma once

#include <vector>

#include "scheduler/plan_builder.h"

namespace stagecoach {

/// Forwards rank `rank` of `stages` runs before its first backward: N - 1 - r, enough for the first
/// gradient to come back, plus min(slack, N - 1 - r) to cover hand-overs that take time. Slack
/// N - 1 doubles it, which hides a latency of up to about half a stage.
int warmup_forwards(int stages, int rank, int slack);

/// One forward, one backward in turn after `warmup` forwards, then the remaining backwards: the
/// order of 1F1B, and without a flush of PipeDream and PACI. All on `stage`.
std::vector<StageWork> warmup_order(int stage, int micro_batches, int warmup);

/// Plan of N stages in that order, with the in-flight limits that follow from it.
Plan warmup_plan(std::string schedule, int micro_batches, const StageLayers& layers, int slack);

}  // namespace stagecoach
