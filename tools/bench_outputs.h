#pragma once

#include "core/status.h"
#include "tools/bench_options.h"

namespace stagecoach {

/// Refuses two outputs, or an output and --baseline, that are one file: invalid argument.
Status check_outputs(const BenchOptions& options);

}  // namespace stagecoach
