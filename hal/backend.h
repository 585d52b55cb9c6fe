#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "hal/device.h"
#include "hal/device_spec.h"

namespace stagecoach {

/// A family of devices: "cpu", "cuda", "hip", "sim".
/// Thread rule: one thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  /// Ok when at least one device can be opened; otherwise why not and what to do about it.
  virtual Status availability() = 0;
  /// Devices that exist, without opening them.
  virtual std::vector<DeviceInfo> list_devices() = 0;
  /// Architectures of cards that this program holds code for; empty where code fits any device.
  virtual std::vector<std::string> code_targets() const { return {}; }
  /// Refuses what is wrong with `spec` on every machine, before availability is asked for.
  virtual Status check(const DeviceSpec&) const { return Status::ok(); }
  /// Opens the devices that `spec` (of this backend) asks for, in order. Bad options are invalid
  /// arguments; an absent device is unavailable, with the reason.
  virtual Result<std::vector<std::unique_ptr<Device>>> open(const DeviceSpec& spec) = 0;
};

}  // namespace stagecoach
