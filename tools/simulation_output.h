#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "scheduler/schedules/schedule_run.h"
#include "tools/stage_time_file.h"

namespace stagecoach {

/// What layer times say beyond a timeline.
struct LayerFigures {
  double bubble = 0;        ///< of an isolated iteration with barrier, else of steady ones
  double step_ns = 0;       ///< an iteration
  double tokens_per_s = 0;  ///< 0: not known
  std::string bottleneck;
  Json details = Json::object();  ///< further keys of the answer: lanes, stages, assumptions
  std::string text;               ///< the same for people, whole lines
};

/// The unit of layer times.
inline constexpr int64_t kNsPerMs = 1'000'000;

/// One simulated schedule and the unit that its times are shown in.
struct SimulatedRun {
  ScheduleRun run;
  int64_t ns_per_unit = kNsPerTimeUnit;
  std::optional<LayerFigures> layers;
};

/// The keys of `simulate --json`.
Json run_to_json(const SimulatedRun& shown);

/// The same for people: measures, then a line a device.
std::string run_to_text(const SimulatedRun& shown);
/// Its measures alone.
std::string measures_to_text(const SimulatedRun& shown);

/// One schedule of a comparison: its run, or why it cannot run.
struct ComparedRun {
  std::string name;
  Result<SimulatedRun> run;
};

/// One object with a list "schedules"; one table.
Json rows_to_json(const std::vector<ComparedRun>& rows);
std::string rows_to_text(const std::vector<ComparedRun>& rows);

/// Writes the timeline as a Perfetto trace; one unit of time is shown as 1 ms.
Status write_simulation_trace(const std::string& path, const SimulatedRun& shown);

/// Model stages a device runs on average, at least 1.
int stages_per_device(const Plan& plan);

}  // namespace stagecoach
