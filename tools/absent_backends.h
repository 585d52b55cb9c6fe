#pragma once

#include <string>
#include <vector>

#include "hal/backend_registry.h"

namespace stagecoach {

/// A backend that is absent, and why.
struct AbsentBackend {
  std::string backend;
  std::string reason;
};

/// Backends that can open no device here, those that are not built in included.
std::vector<AbsentBackend> absent_backends(const BackendRegistry& backends);

}  // namespace stagecoach
