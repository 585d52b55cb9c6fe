#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "testing/fault_plan.h"
#include "tests/integration/training_fixture.h"

namespace stagecoach::testing {

/// Two devices, a tiny GPT-2 and three iterations, which overlap as `update` lets them: what fault
/// plans are tried on. Schedules change no bit of the weights.
TinyRun sweep_run(const std::string& schedule = "roundpipe", const std::string& update = "overlap");

/// What came of a run with a fault plan.
struct FaultedRun {
  Status status;
  std::string weights_sha256;  ///< empty after a failure
  bool fired = false;          ///< every fault of the plan has happened
  CallCounts counts;           ///< calls until the last iteration ended
  double seconds = 0;          ///< from opening the devices to closing them
};

/// Trains on decorated devices that follow `plan`.
FaultedRun train_with_faults(const TinyRun& run, const FaultPlan& plan);

/// The run without faults by roundpipe, made once an update mode.
const FaultedRun& fault_free_run(const std::string& update = "overlap");

/// Calls that every run by `schedule` makes for sure: where their number depends on timing (events
/// are asked, made and recorded as needed), half of the least that several runs made.
const CallCounts& certain_counts(const std::string& schedule = "roundpipe",
                                 const std::string& update = "overlap");

}  // namespace stagecoach::testing
