#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "scheduler/machine_profile.h"

namespace stagecoach {

/// What whoever uses the profile has to assume since it does not have it, a line each.
std::vector<std::string> assumptions_of(const MachineProfile& profile);

/// Everything in it for people, with what is assumed at the end.
std::string profile_table(const MachineProfile& profile);

/// The same for scripts: `profile` as docs/machine_profile.schema.json says, `assumed`, and
/// `is_measured`, false for one that was written by hand.
Json profile_json(const MachineProfile& profile);

}  // namespace stagecoach
