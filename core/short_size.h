#pragma once

#include <string>

#include "core/bytes.h"

namespace stagecoach {

/// "64M", "4K", "100": short and exact, for names.
std::string short_size(ByteCount size);

}  // namespace stagecoach
