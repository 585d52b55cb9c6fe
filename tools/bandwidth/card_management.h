#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "hal/device_info.h"
#include "tools/bandwidth/card_state.h"

namespace stagecoach {

/// A vendor's management library, opened at run time. Cards are found by UUID or PCI address, never
/// by number, which CUDA_VISIBLE_DEVICES and containers change. Thread rule: one thread at a time.
class ManagementLibrary {
 public:
  virtual ~ManagementLibrary() = default;
  /// What it tells of the card; nothing where it does not know it.
  virtual std::optional<CardState> read(const DeviceInfo& device) = 0;
};

/// Every management library of this machine.
class CardManagement {
 public:
  /// Opens those that there are; `nvml` and `rocm_smi` are names or paths to open instead of the
  /// usual ones. Without any, everything is unknown, and `absent` says why.
  static CardManagement open(const std::string& nvml, const std::string& rocm_smi);
  /// The same with what the environment says (core/settings.h). Errors: settings that cannot be
  /// read.
  static Result<CardManagement> open();

  /// What is known of the card behind `device`; nothing for mocks and where no library knows it.
  std::optional<CardState> read(const DeviceInfo& device);
  /// "libnvidia-ml: …": why a library is not there.
  const std::vector<std::string>& absent() const { return absent_; }

 private:
  std::vector<std::unique_ptr<ManagementLibrary>> libraries_;
  std::vector<std::string> absent_;
};

/// NVIDIA's NVML. Unavailable, with the reason, where it does not open or start.
Result<std::unique_ptr<ManagementLibrary>> open_nvml(const std::string& override_name);

/// AMD's ROCm SMI, likewise.
Result<std::unique_ptr<ManagementLibrary>> open_rocm_smi(const std::string& override_name);

/// Domain, bus, device and function as a number of ROCm SMI's form (domain << 32 | bus << 8 |
/// device
/// << 3 | function) of "0000:65:00.0" in any spelling of drivers; nothing for another text. Pure.
std::optional<uint64_t> pci_number(const std::string& address);

}  // namespace stagecoach
