#include "backends/gpu/gpu_sysfs.h"

#include <cctype>
#include <fstream>

namespace stagecoach {

int pci_numa_node(std::string address) {
  if (address.empty()) return -1;
  // Drivers print capitals and at times a longer domain than sysfs.
  for (char& letter : address) letter = static_cast<char>(std::tolower(letter));
  constexpr size_t kSysfsLength = sizeof("0000:00:00.0") - 1;
  if (address.size() > kSysfsLength) address.erase(0, address.size() - kSysfsLength);
  std::ifstream file("/sys/bus/pci/devices/" + address + "/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

}  // namespace stagecoach
