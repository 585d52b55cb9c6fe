#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "hal/device_info.h"

namespace stagecoach {

/// A field of which a machine tells something else by now.
struct IdentityChange {
  std::string field, before, now;  ///< `before` is empty where the field was not recorded

  /// "processor was A and is B".
  std::string text() const;
  /// Whether figures may well hold all the same: another kernel or driver on the same machine.
  bool is_soft() const;
};

/// What a machine is told by, so that figures measured on another, or before it was changed, are
/// not taken for its own.
struct MachineIdentity {
  /// Name and value, in a fixed order: "processor", "threads", every device by its id, then
  /// "kernel" and "driver" where they are known.
  std::vector<std::pair<std::string, std::string>> fields;

  bool operator==(const MachineIdentity&) const = default;
  /// SHA-256 of the fields that are not soft, for file names.
  std::string fingerprint() const;
  /// The fields that differ. Devices that only the other has do not count: a profile of two cards
  /// holds for a run on one of them. Nor do soft fields that one of them does not have.
  std::vector<IdentityChange> changes_to(const MachineIdentity& now) const;
};

namespace internal {

/// What the identity follows from.
struct IdentityInputs {
  std::string cpuinfo;  ///< text of /proc/cpuinfo
  int threads = 0;      ///< usable by this process
  std::string kernel;   ///< release; empty: not known
  std::string driver;   ///< of the cards; empty: not known
  std::vector<DeviceInfo> devices;
};

/// The first word of the first line that is a number with dots: of "NVIDIA UNIX x86_64 Kernel
/// Module  550.54.15  date" the version; empty where there is none. Pure.
std::string driver_version(std::string_view text);

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
