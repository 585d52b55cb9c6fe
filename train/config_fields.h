#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "train/config.h"

namespace stagecoach::internal {

/// One key of a configuration: how it is read, checked and shown.
struct ConfigField {
  std::string key;       ///< "train.batch"
  bool is_text = false;  ///< the command line may give it without quotes
  /// Checks a value and stores it. The message of a failure continues "KEY = VALUE", but that of a
  /// table's members, which names the member.
  std::function<Status(const Json& value, TrainConfig& config)> read;
  /// The value as it would be written; null for keys that this version refuses.
  std::function<Json(const TrainConfig& config)> show;
  bool is_table = false;  ///< the command line may give its members one by one
};

/// Every key of the contract, in the order in which they are printed.
const std::vector<ConfigField>& config_fields();

/// A value as a message shows it. Unlike JSON, TOML has numbers that are not finite.
std::string shown(const Json& value);

/// "60s": the shortest text that reads back to the same time.
std::string format_duration(int64_t duration_ns);

}  // namespace stagecoach::internal
