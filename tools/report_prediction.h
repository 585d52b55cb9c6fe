#pragma once

#include <string>
#include <string_view>

#include "core/json.h"
#include "tools/trace_file.h"

namespace stagecoach {

/// What the names of processes that hold a prediction begin with; the device's name follows.
inline constexpr std::string_view kPredictedPrefix = "predicted ";

/// Whether a thread's process holds a prediction.
bool is_predicted(const TraceContent& content, int64_t thread);

/// Compute of the predicted iteration beside what was measured of it: {"iteration" (from 1),
/// "measured_us", "predicted_us", "difference" (predicted / measured - 1), "devices": the same of
/// each, with "device"}; times are from the first start to the last end. Null where the trace has
/// no prediction or nothing was measured of it.
Json compare_with_prediction(const TraceContent& content);

}  // namespace stagecoach
