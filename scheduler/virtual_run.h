#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/status.h"
#include "core/trace.h"
#include "hal/device.h"
#include "hal/host_queue.h"
#include "memory/activation_store.h"
#include "memory/arena.h"
#include "memory/host_state.h"
#include "scheduler/iteration_report.h"
#include "scheduler/network.h"
#include "scheduler/plan.h"
#include "scheduler/planner.h"
#include "scheduler/stage_executor.h"

namespace stagecoach {

/// What is run without data.
struct VirtualRun {
  const Network* network = nullptr;
  MicroBatchShape shape;
  const Plan* plan = nullptr;
  bool recomputes = false;         ///< bound stages keep their inputs alone
  std::vector<Device*> devices;    ///< simulated ones of one machine
  HostQueue* host_work = nullptr;  ///< of the same machine
  int passes = 1;
  Trace* trace = nullptr;  ///< may be null
};

/// The executor and all that it works with, for passes whose data nobody looks at: on simulated
/// devices, and to time what the executor itself costs. Thread rule: one thread.
class DatalessPasses {
 public:
  /// What `run` names must outlive it; `run.passes` is not used. Errors: what memory and executor
  /// report.
  static Result<std::unique_ptr<DatalessPasses>> create(const VirtualRun& run);
  /// One pass from its start to the end of everything.
  Result<IterationReport> run_pass();

 private:
  explicit DatalessPasses(const VirtualRun& run) : run_(run) {}
  Status make_batch();
  Status make_state();
  Status make_store();
  Status make_executor();

  VirtualRun run_;
  PassInput input_;
  std::optional<Arena> batch_;
  std::unique_ptr<HostState> state_;
  std::optional<ActivationStore> store_;
  std::unique_ptr<StageExecutor> executor_;  // last: it uses the rest
};

/// The executor's own passes over a plan on simulated devices: transfers, waits and host sums take
/// their virtual time, nothing is computed. One report a pass. Errors: invalid argument for devices
/// that exist; what the executor reports, a deadlock among it.
Result<std::vector<IterationReport>> run_virtually(const VirtualRun& run);

}  // namespace stagecoach
