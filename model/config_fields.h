#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/status.h"

namespace stagecoach {

/// Largest value of any size in a configuration: products of three still fit 63 bits.
inline constexpr int64_t kMaxDimension = int64_t{1} << 20;
inline constexpr int64_t kMaxLayers = 4096;

/// Reads fields of one object of a config.json. A field that is null counts as missing. Of a list
/// of names the first that is there counts, and all that are there must agree. Keeps which fields
/// were asked for and which defaults were taken. Errors name source, field, value and what is
/// expected. `json` must outlive it.
class ConfigFields {
 public:
  using Names = std::initializer_list<std::string_view>;

  /// `source` names the file; `prefix` stands before names in messages: "rope_scaling.".
  ConfigFields(const Json& json, std::string source, std::string prefix = "");

  const std::string& source() const { return source_; }
  Status refuse(std::string_view field, std::string_view found, std::string_view expected) const;

  /// The field, or null when it is missing.
  const Json* find(std::string_view name);
  Result<std::optional<int64_t>> find_integer(Names names);
  Result<std::optional<double>> find_number(std::string_view name);
  Result<std::optional<std::string>> find_text(std::string_view name);

  Status read_integer(Names names, int64_t& target);
  Status read_integer_or(Names names, int64_t fallback, int64_t& target);
  Status read_number(std::string_view name, double& target);
  Status read_number_or(std::string_view name, double fallback, double& target);
  Status read_bool_or(std::string_view name, bool fallback, bool& target);

  /// Lists "text" among the defaults.
  void note_default(std::string text) { defaulted_.push_back(std::move(text)); }
  const std::vector<std::string>& defaulted() const { return defaulted_; }
  /// Fields that are there, not null and not asked for.
  std::vector<std::string> unread() const;

 private:
  Status missing(std::string_view name, std::string_view expected) const;

  const Json& json_;
  std::string source_, prefix_;
  std::vector<std::string> asked_, defaulted_;
};

/// Whether a field says nothing about the computation: what the model was, defaults of generation,
/// and switches of other libraries.
bool is_harmless_field(std::string_view name);

}  // namespace stagecoach
