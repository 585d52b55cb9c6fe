#pragma once

#include <string>

#include "scheduler/machine_profile.h"

namespace stagecoach {

/// A row a figure: entry, subject, quantity, unit, value. The columns and the names of entries and
/// quantities are those of its schema version. RFC 4180.
std::string profile_csv(const MachineProfile& profile);

}  // namespace stagecoach
