#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "hal/device_info.h"

namespace stagecoach {

/// What a machine is told by, so that figures measured on another, or before it was changed, are
/// not taken for its own.
struct MachineIdentity {
  /// Name and value, in a fixed order: "processor", "threads", and every device by its id.
  std::vector<std::pair<std::string, std::string>> fields;

  bool operator==(const MachineIdentity&) const = default;
  /// SHA-256 of the fields, for file names.
  std::string fingerprint() const;
  /// A line for each field that differs: "processor was A and is B". Devices that only the other
  /// has do not count: a profile of two cards holds for a run on one of them.
  std::vector<std::string> changes_to(const MachineIdentity& now) const;
};

namespace internal {

/// What the identity follows from.
struct IdentityInputs {
  std::string cpuinfo;  ///< text of /proc/cpuinfo
  int threads = 0;      ///< usable by this process
  std::vector<DeviceInfo> devices;
};

/// The identity that the inputs make. Pure.
MachineIdentity machine_identity(const IdentityInputs& inputs);

}  // namespace internal

/// Of this machine with `devices`. Memory is no part of it: what a guest sees of it may grow as it
/// is used. Errors: io where /proc cannot be read.
Result<MachineIdentity> read_machine_identity(const std::vector<DeviceInfo>& devices);

/// Its fields as a JSON object of texts.
Json to_json(const MachineIdentity& identity);
/// The reverse; refusals name `where`.
Result<MachineIdentity> parse_machine_identity(const Json& json, const std::string& where);

}  // namespace stagecoach
