#include "tools/json_lines.h"

namespace stagecoach {

Status for_each_line(std::string_view text,
                     const std::function<Status(std::string_view, int64_t)>& visit) {
  for (int64_t number = 1; !text.empty(); ++number) {
    size_t end = text.find('\n');
    STAGECOACH_RETURN_IF_ERROR(visit(text.substr(0, end), number));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return Status::ok();
}

double number_at(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_number() ? value->as_number() : 0.0;
}

int64_t integer_at(const Json& object, std::string_view key, int64_t otherwise) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_integer() ? value->as_integer() : otherwise;
}

std::string text_at(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

}  // namespace stagecoach
