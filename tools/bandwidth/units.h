#pragma once

#include <string_view>

namespace stagecoach {

/// Rates are printed in GB/s of 1e9 bytes; sizes are in binary units.
inline constexpr double kBytesPerGb = 1e9;
inline constexpr double kNsPerSecond = 1e9;

/// What is measured in a time should be low; everything else should be high.
constexpr bool is_better_low(std::string_view unit) {
  return unit == "s" || unit == "ms" || unit == "us" || unit == "s/GiB";
}

}  // namespace stagecoach
