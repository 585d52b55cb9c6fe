#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>

#include "core/file.h"
#include "core/json.h"

namespace stagecoach {

/// Compares JSON with a schema. Knows the words that the schemas in docs/ use: $ref into $defs,
/// type, const, enum, required, properties, additionalProperties, items, minItems, maxItems,
/// minimum, exclusiveMinimum, maximum; any other is a violation of its own.
class JsonSchema {
 public:
  explicit JsonSchema(Json root) : root_(std::move(root)) {}

  /// The schema docs/NAME; fails the test where it cannot be read.
  static JsonSchema read(const std::string& name) {
    Result<std::string> text = read_file(std::string(STAGECOACH_SOURCE_DIR) + "/docs/" + name);
    EXPECT_TRUE(text.is_ok()) << text.status().to_string();
    Result<Json> json = Json::parse(text.is_ok() ? *text : "{}");
    EXPECT_TRUE(json.is_ok()) << json.status().to_string();
    return JsonSchema(json.is_ok() ? *json : Json::object());
  }

  /// The first way in which `value` is not as the schema says, with its place; empty where it is.
  std::string violation(const Json& value) const { return check(root_, value, "$"); }

 private:
  static bool is_type(const Json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "integer") return value.is_integer();
    if (type == "number") return value.is_number();
    if (type == "boolean") return value.is_bool();
    return type == "null" && value.is_null();
  }

  static bool fits_type(const Json& type, const Json& value) {
    if (type.is_string()) return is_type(value, type.as_string());
    for (const Json& one : type.items()) {
      if (is_type(value, one.as_string())) return true;
    }
    return false;
  }

  static bool is_one_of(const Json& list, const Json& value) {
    for (const Json& one : list.items()) {
      if (one.dump() == value.dump()) return true;
    }
    return false;
  }

  std::string check(const Json& schema, const Json& value, const std::string& place) const {
    for (const auto& [word, rule] : schema.members()) {
      std::string found = check_word(schema, word, rule, value, place);
      if (!found.empty()) return found;
    }
    return "";
  }

  std::string check_word(const Json& schema, const std::string& word, const Json& rule,
                         const Json& value, const std::string& place) const {
    auto wrong = [&] {
      return fmt::format("{} is {}; {} is {}", place, value.dump(), word, rule.dump());
    };
    if (word == "$ref") {
      const std::string name = rule.as_string().substr(std::string("#/$defs/").size());
      const Json* target = root_.find("$defs")->find(name);
      return target == nullptr ? "unknown " + rule.as_string() : check(*target, value, place);
    }
    if (word == "type") return fits_type(rule, value) ? "" : wrong();
    if (word == "const") return rule.dump() == value.dump() ? "" : wrong();
    if (word == "enum") return is_one_of(rule, value) ? "" : wrong();
    if (word == "required") {
      for (const Json& name : rule.items()) {
        bool is_missing = value.is_object() && value.find(name.as_string()) == nullptr;
        if (is_missing) return fmt::format("{} has no '{}'", place, name.as_string());
      }
      return "";
    }
    if (word == "properties" || word == "additionalProperties") {
      return check_members(schema, word, rule, value, place);
    }
    if (word == "items") {
      for (size_t i = 0; value.is_array() && i < value.items().size(); ++i) {
        std::string found = check(rule, value.items()[i], fmt::format("{}[{}]", place, i));
        if (!found.empty()) return found;
      }
      return "";
    }
    if (word == "minItems") {
      return !value.is_array() || std::ssize(value.items()) >= rule.as_integer() ? "" : wrong();
    }
    if (word == "maxItems") {
      return !value.is_array() || std::ssize(value.items()) <= rule.as_integer() ? "" : wrong();
    }
    if (word == "exclusiveMinimum") {
      return !value.is_number() || value.as_number() > rule.as_number() ? "" : wrong();
    }
    if (word == "minimum") {
      return !value.is_number() || value.as_number() >= rule.as_number() ? "" : wrong();
    }
    if (word == "maximum") {
      return !value.is_number() || value.as_number() <= rule.as_number() ? "" : wrong();
    }
    bool says_nothing = word == "$schema" || word == "title" || word == "description" ||
                        word == "$defs" || word == "default";
    return says_nothing ? "" : fmt::format("the schema's word '{}' is not known here", word);
  }

  std::string check_members(const Json& schema, const std::string& word, const Json& rule,
                            const Json& value, const std::string& place) const {
    if (!value.is_object()) return "";
    for (const auto& [name, member] : value.members()) {
      const Json* properties = schema.find("properties");
      const Json* own = properties == nullptr ? nullptr : properties->find(name);
      if (word == "properties" && own != nullptr) {
        std::string found = check(*own, member, place + "." + name);
        if (!found.empty()) return found;
      }
      bool is_closed = word == "additionalProperties" && rule.is_bool() && !rule.as_bool();
      if (is_closed && own == nullptr) return fmt::format("{} has '{}'", place, name);
    }
    return "";
  }

  Json root_;
};

}  // namespace stagecoach
