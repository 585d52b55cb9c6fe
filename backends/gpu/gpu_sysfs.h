#pragma once

#include <string>

namespace stagecoach {

/// NUMA node of the PCI device at `address` ("0000:3b:00.0"), from sysfs; -1 when unknown or none.
int pci_numa_node(const std::string& address);

/// Whether a display of the PCI device at `address` is on, by the connectors that the kernel lists
/// under `devices` (a folder as /sys/bus/pci/devices).
bool pci_drives_display(const std::string& address,
                        const std::string& devices = "/sys/bus/pci/devices");

}  // namespace stagecoach
