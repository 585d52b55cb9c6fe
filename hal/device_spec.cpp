#include "hal/device_spec.h"

#include <fmt/format.h>

namespace stagecoach {

namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// Splits at commas that stand outside brackets.
std::vector<std::string_view> split_elements(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == ',' && depth == 0)) {
      parts.push_back(trimmed(text.substr(start, i - start)));
      start = i + 1;
    } else if (text[i] == '[') {
      ++depth;
    } else if (text[i] == ']' && depth > 0) {
      --depth;
    }
  }
  return parts;
}

Status element_error(std::string_view element, std::string_view problem) {
  return invalid_argument(fmt::format("device '{}': {}", element, problem));
}

/// Adds one item between brackets: "name=value", or a further value of the last name.
Status add_item(DeviceSpec& spec, std::string_view item, std::string& current) {
  if (item.empty()) return element_error(spec.text, "an option is empty; remove the extra comma");
  size_t equals = item.find('=');
  if (equals == std::string_view::npos) {
    if (current.empty()) {
      return element_error(spec.text,
                           fmt::format("option '{}' has no value; write {}=VALUE", item, item));
    }
    spec.options[current].emplace_back(item);
    return Status::ok();
  }
  std::string name(trimmed(item.substr(0, equals)));
  std::string_view value = trimmed(item.substr(equals + 1));
  if (name.empty()) {
    return element_error(spec.text, fmt::format("'{}' has no name; write NAME=VALUE", item));
  }
  if (value.empty()) {
    return element_error(spec.text,
                         fmt::format("option '{}' has no value; write {}=VALUE", name, name));
  }
  if (spec.options.count(name) != 0) {
    return element_error(spec.text, fmt::format("option '{}' is given twice; keep one", name));
  }
  current = name;
  spec.options[name].emplace_back(value);
  return Status::ok();
}

Status parse_options(DeviceSpec& spec, std::string_view inside) {
  std::string current;
  size_t start = 0;
  for (;;) {
    size_t comma = inside.find(',', start);
    std::string_view item = inside.substr(
        start, comma == std::string_view::npos ? std::string_view::npos : comma - start);
    STAGECOACH_RETURN_IF_ERROR(add_item(spec, trimmed(item), current));
    if (comma == std::string_view::npos) return Status::ok();
    start = comma + 1;
  }
}

/// "cpu4" -> "cpu:4", "cpu" -> "cpu:1": what was probably meant.
std::string with_colon(std::string_view head) {
  size_t digits = head.find_first_of("0123456789");
  if (digits == std::string_view::npos) return fmt::format("{}:1", head);
  return fmt::format("{}:{}", head.substr(0, digits), head.substr(digits));
}

Result<DeviceSpec> parse_element(std::string_view element) {
  DeviceSpec spec;
  spec.text = std::string(element);
  if (element.empty()) return element_error("", "an element is empty; write one such as cpu:4");
  size_t open = element.find('[');
  std::string_view head = trimmed(element.substr(0, open));
  if (open == std::string_view::npos && element.find(']') != std::string_view::npos) {
    return element_error(element, "']' without '['; write NAME:COUNT[option=value]");
  }
  size_t colon = head.find(':');
  if (colon == std::string_view::npos) {
    return element_error(element,
                         fmt::format("':' is missing; did you mean '{}'?", with_colon(head)));
  }
  spec.backend = std::string(trimmed(head.substr(0, colon)));
  spec.which = std::string(trimmed(head.substr(colon + 1)));
  if (spec.backend.empty() || spec.which.empty()) {
    return element_error(element, fmt::format("nothing stands {} ':'; write one such as cpu:4",
                                              spec.backend.empty() ? "before" : "after"));
  }
  if (open == std::string_view::npos) return spec;
  if (element.back() != ']') {
    bool unclosed = element.find(']') == std::string_view::npos;
    return element_error(element, unclosed ? "']' is missing; close the bracket at the end"
                                           : "text follows ']'; separate devices with a comma");
  }
  std::string_view inside = element.substr(open + 1, element.size() - open - 2);
  if (inside.find_first_of("[]") != std::string_view::npos) {
    return element_error(element, "brackets inside brackets; write one pair, at the end");
  }
  STAGECOACH_RETURN_IF_ERROR(parse_options(spec, inside));
  return spec;
}

}  // namespace

Result<std::vector<DeviceSpec>> parse_device_specs(std::string_view text) {
  std::vector<DeviceSpec> specs;
  for (std::string_view element : split_elements(text)) {
    STAGECOACH_ASSIGN_OR_RETURN(DeviceSpec spec, parse_element(element));
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace stagecoach
