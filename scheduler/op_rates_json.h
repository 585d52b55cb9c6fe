#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "hal/op_rates.h"

namespace stagecoach {

/// [{"op": "matmul", "dtype": "bf16", "layout": "nt", "sizes": […], "work": …, "us": …}]: timed
/// operations as results and machine profiles hold them.
Json to_json(std::span<const TimedOp> ops);

/// The same read back. Unknown operations and fields, and sizes, work or times that are none, are
/// refused by `where` and place.
Result<std::vector<TimedOp>> read_timed_ops(const Json& json, const std::string& where);

}  // namespace stagecoach
