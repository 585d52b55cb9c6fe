#define TOML_EXCEPTIONS 0
#include <algorithm>
#include <fmt/format.h>
#include <toml++/toml.h>

#include "core/json.h"

namespace stagecoach {

namespace {

/// Deepest nesting that is read; the library's own limit is the same and guards its recursion.
constexpr int kMaxTomlDepth = 256;

Status refuse(std::string_view source, const toml::source_position& position,
              std::string_view reason) {
  return invalid_argument(
      fmt::format("{}: line {}, column {}: {}", source, position.line, position.column, reason));
}

Result<Json> to_json(const toml::node& node, std::string_view source, int depth);

Result<Json> table_to_json(const toml::table& table, std::string_view source, int depth) {
  struct Entry {
    const toml::key* key;
    const toml::node* value;
  };
  std::vector<Entry> entries;
  for (auto&& [key, value] : table) entries.push_back({&key, &value});
  // The library sorts by name; people expect `--print-config` in the order they wrote.
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& left, const Entry& right) {
    return left.key->source().begin < right.key->source().begin;
  });
  Json::Object members;
  for (const Entry& entry : entries) {
    STAGECOACH_ASSIGN_OR_RETURN(Json value, to_json(*entry.value, source, depth + 1));
    members.emplace_back(std::string(entry.key->str()), std::move(value));
  }
  return Json(std::move(members));
}

Result<Json> array_to_json(const toml::array& array, std::string_view source, int depth) {
  Json::Array items;
  for (const toml::node& node : array) {
    STAGECOACH_ASSIGN_OR_RETURN(Json item, to_json(node, source, depth + 1));
    items.push_back(std::move(item));
  }
  return Json(std::move(items));
}

Result<Json> to_json(const toml::node& node, std::string_view source, int depth) {
  if (depth > kMaxTomlDepth) {
    return refuse(source, node.source().begin,
                  fmt::format("nested deeper than {} levels", kMaxTomlDepth));
  }
  switch (node.type()) {
    case toml::node_type::table:
      return table_to_json(*node.as_table(), source, depth);
    case toml::node_type::array:
      return array_to_json(*node.as_array(), source, depth);
    case toml::node_type::string:
      return Json(node.as_string()->get());
    case toml::node_type::integer:
      return Json(int64_t{node.as_integer()->get()});
    case toml::node_type::floating_point:
      return Json(node.as_floating_point()->get());
    case toml::node_type::boolean:
      return Json(node.as_boolean()->get());
    default:
      return refuse(source, node.source().begin,
                    "dates and times are not used here; write text in quotes or a number");
  }
}

}  // namespace

Result<Json> parse_toml(std::string_view text, std::string_view source) {
  try {
    toml::parse_result parsed = toml::parse(text, source);
    if (!parsed) {
      const toml::parse_error& error = parsed.error();
      return refuse(source, error.source().begin, error.description());
    }
    return to_json(parsed.table(), source, 0);
  } catch (const std::exception& error) {  // memory: the library itself is built without
    return invalid_argument(fmt::format("{}: {}", source, error.what()));
  }
}

}  // namespace stagecoach
