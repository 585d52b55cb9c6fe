#pragma once

#include "core/json.h"
#include "core/status.h"
#include "tools/bandwidth/results.h"

namespace stagecoach {

/// The report that `bandwidth_json` wrote; samples only where they were written, findings not, as
/// they follow from the rest. `source` names it in messages. Errors: invalid argument for another
/// schema version or what is no such report.
Result<BandwidthReport> read_bandwidth_json(const Json& json, const std::string& source);

}  // namespace stagecoach
