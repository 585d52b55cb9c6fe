#pragma once

#include <memory>

#include "hal/backend.h"

namespace stagecoach {

/// The reference backend: devices that compute for real on host threads and, with pacing options,
/// stand in for a machine of GPUs. See docs/cpu_backend.md for the device-string options.
std::unique_ptr<Backend> make_cpu_backend();

}  // namespace stagecoach
