#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "hal/backend_registry.h"

namespace stagecoach {

/// Opened devices of a command that can do without any.
struct CardDevices {
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::string> absent;  ///< "cuda: …": why there are no others, where none were named

  std::vector<Device*> pointers() const;
};

/// Opens what `spec` names; where it is empty, every card there is, which may be none. Errors:
/// those of BackendRegistry::open_devices.
Result<CardDevices> open_cards(const BackendRegistry& backends, const std::string& spec);

}  // namespace stagecoach
