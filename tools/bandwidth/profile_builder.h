#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "hal/device_info.h"
#include "scheduler/machine_profile.h"
#include "tools/bandwidth/results.h"

namespace stagecoach {

/// What a profile is made of beside the results.
struct ProfileSubject {
  std::vector<DeviceInfo> devices;
  MachineMeasurement measurement;
};

/// Makes a machine profile of what was measured: links from the fastest pinned copies and duplex,
/// rates of computing and updating, pools from contention, both ways between devices from p2p, and
/// of urgent copies the method and chunk with the shortest waits among those that keep 96 % of the
/// link. What was not measured is
/// left out where planning can do without it, else assumed; notes say so. Errors: failed
/// precondition, with what to measure, where links, duplex or updates are missing. Pure.
Result<MachineProfile> build_machine_profile(const BandwidthReport& report,
                                             const ProfileSubject& subject);

}  // namespace stagecoach
