#include "backends/gpu/gpu_sysfs.h"

#include <cctype>
#include <filesystem>
#include <fstream>

namespace stagecoach {

namespace {

/// Drivers print capitals and at times a longer domain than sysfs.
std::string sysfs_name(std::string address) {
  for (char& letter : address) letter = static_cast<char>(std::tolower(letter));
  constexpr size_t kSysfsLength = sizeof("0000:00:00.0") - 1;
  if (address.size() > kSysfsLength) address.erase(0, address.size() - kSysfsLength);
  return address;
}

}  // namespace

int pci_numa_node(const std::string& address) {
  if (address.empty()) return -1;
  std::ifstream file("/sys/bus/pci/devices/" + sysfs_name(address) + "/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

bool pci_drives_display(const std::string& address, const std::string& devices) {
  namespace fs = std::filesystem;
  if (address.empty()) return false;
  // .../drm/card0/card0-HDMI-A-1/enabled. What cannot be listed has no display.
  std::error_code error;
  fs::path drm = fs::path(devices) / sysfs_name(address) / "drm";
  for (const auto& card : fs::directory_iterator(drm, error)) {
    for (const auto& connector : fs::directory_iterator(card.path(), error)) {
      std::ifstream file(connector.path() / "enabled");
      std::string state;
      if (file >> state && state == "enabled") return true;
    }
  }
  return false;
}

}  // namespace stagecoach
