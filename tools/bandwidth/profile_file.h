#pragma once

#include <string>

#include "core/status.h"
#include "scheduler/machine_profile.h"

namespace stagecoach {

/// Ok where a profile can be written at `path`: its folder, or the nearest above that is there,
/// takes a file of that size, and there is no other file than a profile, which is replaced, or an
/// empty one. Asked before measuring, which takes minutes. Leaves nothing. Errors name `path`.
Status check_profile_target(const std::string& path);

/// Writes a profile, and makes its folder, so that after a crash there is the old one or the new
/// one. Errors: io.
Status write_machine_profile(const std::string& path, const MachineProfile& profile);

}  // namespace stagecoach
