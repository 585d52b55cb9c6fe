#pragma once

#include <string>

namespace stagecoach {

/// NUMA node of the PCI device at `address` ("0000:3b:00.0"), from sysfs; -1 when unknown or none.
int pci_numa_node(std::string address);

}  // namespace stagecoach
