#pragma once

#include <string>

#include "core/json.h"
#include "core/status.h"

namespace stagecoach {

/// Most slices of the timeline and points of a curve that a report carries; it says how many there
/// were. Enough for several iterations, few enough to draw at once.
inline constexpr int64_t kMaxReportSlices = 12'000;
inline constexpr int64_t kMaxReportPoints = 2'000;
/// Iterations the timeline shows, when they fit.
inline constexpr int64_t kReportIterations = 3;

/// Gathers what a report shows from a run's folder: metrics.jsonl and summary.json, trace.json and
/// the checkpoint's configuration when they are there. Errors: not found when the folder holds no
/// run, naming what is missing; data loss for a line that does not parse, naming file and line.
Result<Json> gather_report_data(const std::string& folder);

}  // namespace stagecoach
