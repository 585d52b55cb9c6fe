#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/status.h"

namespace stagecoach {

/// A JSON value. Objects keep the order in which keys were added. The parsing and printing library
/// stays inside json.cpp; so does TOML's inside toml.cpp, which yields the same type.
class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;

  Json() = default;
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(static_cast<int64_t>(value)) {}
  Json(int64_t value) : value_(value) {}
  Json(uint64_t value) : value_(static_cast<int64_t>(value)) {}
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}

  static Json object() {
    Json json;
    json.value_ = Object{};
    return json;
  }
  static Json array() { return Json(Array{}); }

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  /// Typed access; the type must match (check it first).
  bool as_bool() const { return std::get<bool>(value_); }
  int64_t as_integer() const { return std::get<int64_t>(value_); }
  double as_number() const {
    return is_integer() ? static_cast<double>(as_integer()) : std::get<double>(value_);
  }
  const std::string& as_string() const { return std::get<std::string>(value_); }
  const Array& items() const { return std::get<Array>(value_); }
  const Object& members() const { return std::get<Object>(value_); }

  /// Member of an object, or null when absent or not an object.
  const Json* find(std::string_view key) const;
  /// Member of an object, added as null when absent. A null value becomes an object.
  Json& operator[](std::string_view key);
  /// Appends to an array. A null value becomes an array.
  void push_back(Json item);

  /// Text on one line, or indented by two spaces. Numbers that are not finite become null.
  std::string dump(bool pretty = false) const;
  /// Strict JSON; a duplicate key, like any other fault, is an error that names line and column.
  static Result<Json> parse(std::string_view text);
  /// "null", "true or false", "integer", "number", "text", "list" or "table".
  std::string_view type_name() const;

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

/// Parses TOML into tables (objects); the error names `source`, line and column.
/// Dates and times are refused: nothing here uses them.
Result<Json> parse_toml(std::string_view text, std::string_view source);

}  // namespace stagecoach
