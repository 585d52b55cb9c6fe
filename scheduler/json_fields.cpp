#include "scheduler/json_fields.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/suggest.h"

namespace stagecoach {

Status JsonFields::check_names() const {
  if (!object_.is_object()) {
    return invalid_argument(
        fmt::format("{} is a {}; it must be a table", where_, object_.type_name()));
  }
  for (const auto& [name, value] : object_.members()) {
    if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
    std::string nearest = nearest_name(name, known_);
    return invalid_argument(fmt::format("{}: unknown field '{}'; did you mean '{}'?", where_, name,
                                        nearest.empty() ? known_.front() : nearest));
  }
  return Status::ok();
}

Result<double> JsonFields::number(const char* name, double least, double most) const {
  const Json* value = object_.find(name);
  if (value == nullptr) {
    return invalid_argument(fmt::format("{}: '{}' is missing; it must be a number", where_, name));
  }
  if (!value->is_number()) {
    return invalid_argument(
        fmt::format("{}: {} is {}; it must be a number", where_, name, value->dump()));
  }
  double found = value->as_number();
  if (found >= least && found <= most) return found;
  return invalid_argument(fmt::format("{}: {} is {}; it must be from {} to {}", where_, name,
                                      value->dump(), least, most));
}

Result<double> JsonFields::number(const char* name, double least, double most,
                                  double fallback) const {
  return object_.find(name) == nullptr ? fallback : number(name, least, most);
}

Result<int> JsonFields::count(const char* name, int least, int most, int fallback) const {
  STAGECOACH_ASSIGN_OR_RETURN(double found, number(name, least, most, fallback));
  if (found == std::floor(found)) return static_cast<int>(found);
  return invalid_argument(
      fmt::format("{}: {} is {}; it must be a whole number", where_, name, found));
}

Result<std::string> JsonFields::text(const char* name, std::string fallback) const {
  const Json* value = object_.find(name);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->as_string();
  return invalid_argument(
      fmt::format("{}: {} is {}; it must be text", where_, name, value->dump()));
}

Result<Json::Array> JsonFields::list(const char* name) const {
  const Json* value = object_.find(name);
  if (value == nullptr) return Json::Array{};
  if (value->is_array()) return value->items();
  return invalid_argument(
      fmt::format("{}: {} is {}; it must be a list", where_, name, value->dump()));
}

}  // namespace stagecoach
