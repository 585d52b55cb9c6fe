#pragma once

namespace stagecoach {

/// Rates are printed in GB/s of 1e9 bytes; sizes are in binary units.
inline constexpr double kBytesPerGb = 1e9;
inline constexpr double kNsPerSecond = 1e9;

}  // namespace stagecoach
