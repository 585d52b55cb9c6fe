#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "scheduler/schedules/schedule_run.h"

namespace stagecoach {

/// The keys of `simulate --json`; times in the units of the command line.
Json run_to_json(const ScheduleRun& run);

/// The same for people: measures, then a line a device.
std::string run_to_text(const ScheduleRun& run);

/// One schedule of a comparison: its run, or why it cannot run.
struct ComparedRun {
  std::string name;
  Result<ScheduleRun> run;
};

/// One object with a list "schedules"; one table.
Json rows_to_json(const std::vector<ComparedRun>& rows);
std::string rows_to_text(const std::vector<ComparedRun>& rows);

/// Writes the timeline as a Perfetto trace; one unit of time is shown as 1 ms.
Status write_simulation_trace(const std::string& path, const ScheduleRun& run);

/// Model stages a device runs on average, at least 1.
int stages_per_device(const Plan& plan);

}  // namespace stagecoach
