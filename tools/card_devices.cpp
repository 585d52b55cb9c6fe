#include "tools/card_devices.h"

#include <fmt/format.h>
#include <iterator>
#include <utility>

#include "tools/absent_backends.h"

namespace stagecoach {

std::vector<Device*> CardDevices::pointers() const {
  std::vector<Device*> all;
  for (const std::unique_ptr<Device>& device : devices) all.push_back(device.get());
  return all;
}

Result<CardDevices> open_cards(const BackendRegistry& backends, const std::string& spec) {
  CardDevices cards;
  if (!spec.empty()) {
    STAGECOACH_ASSIGN_OR_RETURN(cards.devices, backends.open_devices(spec));
    return cards;
  }
  for (const AbsentBackend& one : absent_backends(backends)) {
    cards.absent.push_back(fmt::format("{}: {}", one.backend, one.reason));
  }
  for (const std::unique_ptr<Backend>& backend : backends.backends()) {
    if (!backend->availability().is_ok()) continue;
    std::vector<DeviceInfo> infos = backend->list_devices();
    if (infos.empty() || !infos.front().is_real_hardware) continue;
    STAGECOACH_ASSIGN_OR_RETURN(auto opened,
                                backends.open_devices(std::string(backend->name()) + ":all"));
    std::move(opened.begin(), opened.end(), std::back_inserter(cards.devices));
  }
  return cards;
}

}  // namespace stagecoach
