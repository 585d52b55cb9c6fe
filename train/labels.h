#pragma once

#include <cstdint>

namespace stagecoach {

/// Labels that do not count. Devices know the first; the second is what PyTorch and Hugging Face
/// use, and is taken from callers too.
inline constexpr int32_t kIgnoredLabel = -1;
inline constexpr int32_t kForeignIgnoredLabel = -100;

}  // namespace stagecoach
