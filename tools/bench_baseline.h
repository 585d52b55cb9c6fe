#pragma once

#include <string>
#include <vector>

#include "tools/bandwidth/bandwidth_options.h"
#include "tools/bandwidth/results.h"
#include "tools/bench_options.h"

namespace stagecoach {

/// A file that --out wrote. Errors: io, or invalid argument for another file, naming it.
Result<BandwidthReport> read_bandwidth_report(const std::string& path);

/// What --baseline names, without the results that this run was not asked for: of groups that
/// neither suite nor --group has, and that --filter leaves out.
Result<BandwidthReport> read_baseline(const BenchOptions& options, const BandwidthSuite& suite);

/// Whether any of `ids`, which will be measured, can be compared. Errors: invalid argument, naming
/// --baseline and its file.
Status check_baseline_meets(const BandwidthReport& baseline, const std::string& path,
                            const std::vector<std::string>& ids);

}  // namespace stagecoach
