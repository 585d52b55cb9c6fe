#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"

namespace stagecoach {

/// One element of a --devices string: `cpu:4[memory=64M,speed=1,0.5]`, `cuda:0x2`, `cuda:all`.
struct DeviceSpec {
  std::string backend;  ///< "cpu"
  std::string which;    ///< "4", "0", "0x2", "all", "8xrtx4090"
  /// Options in brackets: name -> values; an item without '=' continues the previous list.
  std::map<std::string, std::vector<std::string>> options;
  std::string text;  ///< as written, for messages
  /// Number of devices of the same backend opened by earlier elements; the first device of this
  /// element gets that index. Filled in by BackendRegistry.
  int first_index = 0;
  /// Every op must give the same bits every run, where a faster way need not. Filled in by
  /// BackendRegistry.
  bool is_deterministic = false;
};

/// Splits a --devices string into its elements. Knows the syntax only: backends check names and
/// values. The error names the element and what is wrong with it.
Result<std::vector<DeviceSpec>> parse_device_specs(std::string_view text);

}  // namespace stagecoach
