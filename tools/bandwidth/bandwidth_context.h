#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/json.h"
#include "hal/device.h"
#include "tools/bandwidth/pci_path.h"

namespace stagecoach {

/// Under what circumstances something was measured: host, kernel, processor, memory, NUMA nodes,
/// load, devices and their links. What cannot be read is null.
Json measurement_context(const std::vector<Device*>& devices,
                         const std::map<std::string, PciPath>& paths);

/// One way to a device as JSON: hops, rate now and at most, NUMA node, IOMMU, largest BAR.
Json pci_path_json(const PciPath& path);

/// Where each device is attached, by id; devices that sysfs does not list are left out.
std::map<std::string, PciPath> read_device_paths(const std::vector<Device*>& devices,
                                                 const std::string& sysfs = "/sys");

}  // namespace stagecoach
