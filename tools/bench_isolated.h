#pragma once

#include "tools/bandwidth/isolated_groups.h"
#include "tools/bench_options.h"
#include "train/progress.h"

namespace stagecoach {

/// What `options` ask for, to be measured in processes of their own. `progress` is told of each
/// group and must outlive the run.
Result<IsolatedRun> isolated_run(const BenchOptions& options, Progress& progress);

/// A profile of a full run also tells of copies between devices, where there are two of a backend.
/// They are no part of `full`, since drivers have hung in them: measures them in a process of their
/// own, with its time limit, and adds the results. What keeps them from being measured is a note.
void add_peers_for_profile(const BenchOptions& options, Progress& progress,
                           BandwidthReport& report);

}  // namespace stagecoach
