#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "memory/budget.h"
#include "scheduler/network.h"
#include "scheduler/planner.h"
#include "tools/planned_model.h"

namespace stagecoach {

/// Bytes of a run by tier, before anything is allocated, and whether they are there.
struct MemoryTable {
  HostNeed host;
  ByteCount moments = 0, gradients = 0;  ///< parts of host.state.trained; weights are the rest
  HostLimits limits;
  ByteCount least_device = 0;  ///< that a device must have: every layer a stage of its own
  PlanRequest request;         ///< its devices and what of each stages may take
  PlannedRun run;              ///< empty where nothing was planned
  std::string problem;         ///< what does not fit and what to change; empty: it fits

  bool fits() const { return problem.empty(); }
  ByteCount weights() const { return host.state.trained - moments - gradients; }
  /// All host memory but that of mocks is pinned where the system allows it.
  ByteCount pinned() const { return host.total() - host.devices; }
};

/// {"host": {…}, "pinned": …, "mapped": …, "devices": [{"id", "memory", "planned"} …],
/// "least_device": …}
Json bytes_to_json(const MemoryTable& table);
/// The same for people, a line each.
std::string bytes_to_text(const MemoryTable& table);

/// {"family", "layers", "hidden", …}
Json architecture_to_json(const Architecture& architecture);
std::string architecture_to_text(const Architecture& architecture);

}  // namespace stagecoach
