#pragma once

#include "tools/bench_options.h"
#include "tools/command.h"

namespace stagecoach {

/// `bench bandwidth profile show|check|export|import FILE…`: an exit code, or the refusal.
Result<int> run_bench_profile(const CommandContext& context, const BenchOptions& options);

}  // namespace stagecoach
