#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "hal/device_info.h"
#include "scheduler/machine_profile.h"

namespace stagecoach {

/// What a run takes from a machine profile, and what it has to assume.
struct MeasuredMachine {
  std::vector<MeasuredLinks> devices;  ///< parallel to the run's
  int host_threads = 0;                ///< for updates; 0: all usable
  std::vector<std::string> taken;      ///< a line each, for people
  std::vector<std::string> assumed;    ///< likewise
  std::vector<std::string> warnings;   ///< what was measured and does not hold here
};

/// What `profile`, which may be null, tells of `devices` on the machine that is now `now`. Where
/// processor or threads have changed nothing of it holds, where a device has, nothing of that
/// device. Of mocks that nobody measured nothing is said. Pure.
MeasuredMachine measured_machine(const MachineProfile* profile,
                                 const std::vector<DeviceInfo>& devices,
                                 const MachineIdentity& now);

/// Reads the profile at `path` (empty: none) for `devices` of this machine. Errors: those of
/// `read_machine_profile`.
Result<MeasuredMachine> read_measured_machine(const std::string& path,
                                              const std::vector<DeviceInfo>& devices);

}  // namespace stagecoach
