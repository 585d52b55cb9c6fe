#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "scheduler/plan_simulation.h"

namespace stagecoach {

/// ns of virtual time that stand for one unit of time on a command line: divisible by 1 to 16, so
/// that times divided by chunks stay exact.
inline constexpr int64_t kNsPerTimeUnit = 720'720'000;

/// A time in units as ns; refuses by `name` what is not from a billionth to a million (NaN
/// included).
Result<int64_t> time_to_ns(const std::string& name, double time);

/// Reads a file of stage times: a line a model stage, "F,B" or "F,I,W", the same on all lines.
/// Empty lines and those that start with '#' are skipped; a bad line is refused by file and line.
Result<std::vector<StageTimes>> read_stage_times(const std::string& path, int64_t hop_ns);

/// The mean of each time; `times` is not empty.
StageTimes mean_of(const std::vector<StageTimes>& times);

}  // namespace stagecoach
