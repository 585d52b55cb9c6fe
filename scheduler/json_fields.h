#pragma once

#include <string>
#include <vector>

#include "core/json.h"
#include "core/status.h"

namespace stagecoach {

/// More bytes than any machine or model of a file has.
inline constexpr double kMostBytes = 1e15;

/// Reads the fields of a JSON object; refusals name `where` (file and place), field and value.
class JsonFields {
 public:
  /// `object` must outlive this; `known` is every field it may have.
  JsonFields(const Json& object, std::string where, std::vector<std::string> known)
      : object_(object), where_(std::move(where)), known_(std::move(known)) {}

  /// Refuses what is no object, and fields that are not known, with the nearest that is.
  Status check_names() const;
  /// A number from `least` to `most`; missing is refused.
  Result<double> number(const char* name, double least, double most) const;
  /// `fallback` where the field is missing.
  Result<double> number(const char* name, double least, double most, double fallback) const;
  /// A whole number from `least` to `most`; `fallback` where it is missing.
  Result<int> count(const char* name, int least, int most, int fallback) const;
  /// `fallback` where the field is missing.
  Result<std::string> text(const char* name, std::string fallback) const;
  /// A list, empty where the field is missing.
  Result<Json::Array> list(const char* name) const;

 private:
  const Json& object_;
  std::string where_;
  std::vector<std::string> known_;
};

}  // namespace stagecoach
