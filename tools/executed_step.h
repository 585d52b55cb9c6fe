#pragma once

#include <string>
#include <vector>

#include "core/trace.h"
#include "scheduler/iteration_report.h"
#include "scheduler/plan.h"
#include "tools/model_plan.h"

namespace stagecoach {

/// One iteration of a model's plan, run by the executor in virtual time.
struct ExecutedStep {
  IterationReport report;
  double total_ns = 0;  ///< from the first upload to the last gradient added up on the host
  std::vector<ByteCount> device_peak_bytes;  ///< parallel to executed_devices
};

/// Those of `plan.setup.devices` on which slots fall: device 0, 1, … of the executable plan.
std::vector<int> executed_devices(const ModelPlan& plan);
/// The plan as the executor runs it.
Plan executable_plan(const ModelPlan& plan);

/// More actions (slots by micro-batches) than these are not executed: about two seconds, and 32 KiB
/// of memory each micro-batch of a few slots.
inline constexpr int64_t kMostExecutedActions = 50'000;

/// Slots by micro-batches of an iteration.
int64_t executed_actions(const ModelPlan& plan);

/// Runs `plan`, made on `rated` devices for a model called `name` that computes in `dtype`, on
/// simulated devices of their rates, with the executor's own transfers, buffers and host costs.
/// Slices go to `trace` when that is not null. Errors: resource exhausted for more actions
/// than kMostExecutedActions; those of make_profiled_network and run_virtually.
Result<ExecutedStep> execute_step(const ModelPlan& plan, const std::string& name, DType dtype,
                                  const RatedDevices& rated, Trace* trace);

}  // namespace stagecoach
