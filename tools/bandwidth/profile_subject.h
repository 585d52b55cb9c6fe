#pragma once

#include "tools/bandwidth/profile_builder.h"

namespace stagecoach {

/// The devices that `context` (of a report) tells of: what a profile needs of them. They need not
/// be open, nor have been opened by this process. Errors: invalid argument, naming the field.
Result<std::vector<DeviceInfo>> devices_of_context(const Json& context);

/// What a profile of `report` is of: its devices, this machine, now. Errors: those of
/// `devices_of_context` and `read_machine_identity`.
Result<ProfileSubject> read_profile_subject(const BandwidthReport& report);

}  // namespace stagecoach
