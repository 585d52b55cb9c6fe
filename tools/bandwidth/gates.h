#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "tools/bandwidth/results.h"

namespace stagecoach {

/// A result must reach a value.
struct Gate {
  std::string id;
  double least = 0;  ///< of the median of its first quantity
};

/// "ID=VALUE" each. Errors: invalid argument, naming --fail-below.
Result<std::vector<Gate>> parse_gates(const std::vector<std::string>& texts);

/// Whether all results reach their gates; a finding is added for each that does not. Errors:
/// invalid argument for an id that was not measured, with the nearest one.
Result<bool> check_gates(const std::vector<Gate>& gates, BandwidthReport& report);

}  // namespace stagecoach
