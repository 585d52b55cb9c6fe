#pragma once

#include <vector>

#include "core/status.h"
#include "core/trace.h"
#include "hal/device.h"
#include "hal/host_queue.h"
#include "scheduler/iteration_report.h"
#include "scheduler/network.h"
#include "scheduler/plan.h"
#include "scheduler/planner.h"

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

/// The executor's own passes over a plan on simulated devices: transfers, waits and host sums take
/// their virtual time, nothing is computed. One report a pass. Errors: invalid argument for devices
/// that exist; what the executor reports, a deadlock among it.
Result<std::vector<IterationReport>> run_virtually(const VirtualRun& run);

}  // namespace stagecoach
