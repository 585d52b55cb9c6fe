#pragma once

#include <vector>

#include "scheduler/cost_table.h"
#include "scheduler/shared_rate.h"

namespace stagecoach {

/// Whether devices share an uplink or host memory that has a limit.
bool has_shared_limits(const StepSetup& setup);

/// Setups without shared limits to search with, which takes a tenth of the time: each link as fast
/// as alone, and as fast as where all are in use.
std::vector<StepSetup> setups_without_limits(const StepSetup& setup);

/// What copies and updates of a step share beside each device's own link: uplinks and the host's
/// memory, where the setup limits them.
class StepLimits {
 public:
  StepLimits(const StepSetup& setup, const CostTable& costs);

  /// The lists may be empty; they stay valid as long as this.
  std::vector<SharedRate*> of_uploads(const PlannedDevice& device) { return of(up_, device); }
  std::vector<SharedRate*> of_downloads(const PlannedDevice& device) { return of(down_, device); }
  std::vector<SharedRate*> of_host_work();
  /// Uplinks that have a device behind them.
  int uplinks_in_use() const { return uplinks_in_use_; }

 private:
  std::vector<SharedRate*> of(std::vector<SharedRate>& uplinks, const PlannedDevice& device);

  std::vector<SharedRate> up_, down_;  ///< per uplink
  std::vector<SharedRate> host_;       ///< one, or none
  int uplinks_in_use_ = 0;
};

}  // namespace stagecoach
