#pragma once

#include "hal/backend_registry.h"

namespace stagecoach {

/// A registry with every backend compiled into this program.
BackendRegistry built_in_backends();

}  // namespace stagecoach
