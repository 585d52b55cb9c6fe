#pragma once

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "scheduler/schedules/schedule_run.h"

namespace stagecoach {

/// One forward of a stage, divisible by every number of chunks in the tests. A backward takes two,
/// its halves one each, hand-overs nothing.
inline constexpr int64_t kUnitNs = 240'000;

/// N devices and M micro-batches with those times.
inline ScheduleParameters pipeline(int stages, int micro_batches) {
  ScheduleParameters parameters;
  parameters.stages = stages;
  parameters.micro_batches = micro_batches;
  parameters.times = {kUnitNs, 2 * kUnitNs, kUnitNs, kUnitNs, 0, 0};
  return parameters;
}

/// RoundPipe's slots: all equally long.
inline ScheduleParameters slot_pipeline(int stages, int micro_batches, int forward_stages,
                                        int backward_stages, int round) {
  ScheduleParameters parameters = pipeline(stages, micro_batches);
  parameters.times.backward_ns = kUnitNs;
  parameters.forward_stages = forward_stages;
  parameters.backward_stages = backward_stages;
  parameters.round = round;
  return parameters;
}

/// Runs a schedule that is expected to work; an empty run when it does not.
inline ScheduleRun run_valid(std::string_view name, const ScheduleParameters& parameters,
                             double freed_at_input = 0) {
  Result<ScheduleRun> run = run_schedule(name, parameters, freed_at_input);
  EXPECT_TRUE(run.is_ok()) << name << " N=" << parameters.stages
                           << " M=" << parameters.micro_batches << ": " << run.status().to_string();
  return run.is_ok() ? std::move(run).value() : ScheduleRun{};
}

inline double units(int64_t time_ns) {
  return static_cast<double>(time_ns) / kUnitNs;
}
inline double makespan(const ScheduleRun& run) {
  return units(run.measures.makespan_ns);
}
inline double span(const ScheduleRun& run) {
  return units(run.measures.span_ns);
}

/// One line a device, entries separated by blanks.
inline std::vector<std::string> lines(const ScheduleRun& run) {
  std::vector<std::string> text;
  for (const std::vector<std::string>& entries : run.order) {
    std::string& line = text.emplace_back();
    for (const std::string& entry : entries) line += (line.empty() ? "" : " ") + entry;
  }
  return text;
}

}  // namespace stagecoach
