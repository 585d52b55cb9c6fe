#pragma once

#include "core/status.h"
#include "core/task_pool.h"
#include "hal/device.h"
#include "tools/bandwidth/pci_path.h"

namespace stagecoach {

/// Copies to and from `device` for a short while and reads the links of its way meanwhile, since
/// idle links save power by going slower and narrower: `path` gets the fastest that was seen.
/// Errors: the device's.
Status read_links_under_load(Device& device, TaskPool& pool, PciPath& path,
                             const std::string& sysfs = "/sys");

}  // namespace stagecoach
