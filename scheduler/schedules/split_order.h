#pragma once

#include <vector>

#include "scheduler/schedules/looped_table.h"

namespace stagecoach {

/// Closed-form zero-bubble order of one rank (arXiv 2401.10241): for x = 0, 1, 2, …: forward x,
/// input gradient x - `input_lag`, weight gradient x - `weight_lag`, leaving out those that do not
/// exist. The lags are all that ZB-H1, ZB-H2 and their interleaved forms differ in.
std::vector<StageWork> split_order(const LoopedTable& table, int rank, int input_lag,
                                   int weight_lag);

}  // namespace stagecoach
