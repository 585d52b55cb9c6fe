#include "core/json.h"

#include <fmt/format.h>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

namespace stagecoach {

namespace {

/// Deepest nesting that is read: values are destroyed recursively, so a file must not choose the
/// depth of our stack.
constexpr size_t kMaxJsonDepth = 256;

/// Iterator over the text that tells how far the library has read: its SAX callbacks carry no
/// position, and a duplicate key has to be reported with one.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* position, const char** furthest)
      : position_(position), furthest_(furthest) {}
  reference operator*() const { return *position_; }
  CountingIterator& operator++() {
    *furthest_ = ++position_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return position_ == other.position_; }
  bool operator!=(const CountingIterator& other) const { return position_ != other.position_; }

 private:
  const char* position_;
  const char** furthest_;
};

std::string line_and_column(std::string_view text, size_t offset) {
  size_t line = 1;
  size_t line_start = 0;
  for (size_t i = 0; i < offset && i < text.size(); ++i) {
    if (text[i] != '\n') continue;
    ++line;
    line_start = i + 1;
  }
  return fmt::format("line {}, column {}", line, offset - line_start + 1);
}

/// Offset of the quote that opens the string whose closing quote lies just before `end`.
size_t opening_quote(std::string_view text, size_t end) {
  for (size_t i = end - 1; i-- > 0;) {
    if (text[i] != '"') continue;
    size_t backslashes = 0;
    while (backslashes < i && text[i - 1 - backslashes] == '\\') ++backslashes;
    if (backslashes % 2 == 0) return i;
  }
  return 0;
}

/// Builds a Json from the library's events; the first fault stops the parse.
class JsonBuilder {
 public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;

  JsonBuilder(std::string_view text, const char* const* furthest)
      : text_(text), furthest_(furthest) {}

  bool null() { return add(Json()); }
  bool boolean(bool value) { return add(Json(value)); }
  bool number_integer(number_integer_t value) { return add(Json(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max())) {
      return add(Json(static_cast<double>(value)));
    }
    return add(Json(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t&) { return add(Json(double{value})); }
  bool string(string_t& value) { return add(Json(std::move(value))); }
  bool binary(binary_t&) { return fail("binary data is not JSON"); }

  bool start_object(std::size_t) { return open(Level{true, {}, {}, {}, {}}); }
  bool key(string_t& name) {
    if (!levels_.back().names.insert(name).second) {
      size_t end = static_cast<size_t>(*furthest_ - text_.data());
      status_ = invalid_argument(fmt::format(
          "{}: key '{}' appears twice", line_and_column(text_, opening_quote(text_, end)), name));
      return false;
    }
    levels_.back().name = std::move(name);
    return true;
  }
  bool end_object() { return close(); }
  bool start_array(std::size_t) { return open(Level{false, {}, {}, {}, {}}); }
  bool end_array() { return close(); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& e) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error …"
    std::string_view message = e.what();
    if (size_t bracket = message.find("] "); bracket != std::string_view::npos) {
      message.remove_prefix(bracket + 2);
    }
    if (message.starts_with("parse error at ")) {
      message.remove_prefix(std::string_view("parse error at ").size());
      status_ = invalid_argument(std::string(message));
    } else {
      size_t offset = position == 0 ? 0 : position - 1;
      status_ = invalid_argument(fmt::format("{}: {}", line_and_column(text_, offset), message));
    }
    return false;
  }

  Status status() const { return status_; }
  Json take_root() { return std::move(root_); }

 private:
  struct Level {
    bool is_object;
    Json::Object members;
    Json::Array items;
    std::unordered_set<std::string> names;
    std::string name;  ///< key whose value comes next
  };

  bool fail(std::string_view message) {
    size_t end = static_cast<size_t>(*furthest_ - text_.data());
    status_ = invalid_argument(
        fmt::format("{}: {}", line_and_column(text_, end == 0 ? 0 : end - 1), message));
    return false;
  }

  bool add(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Level& level = levels_.back();
    if (level.is_object) {
      level.members.emplace_back(std::move(level.name), std::move(value));
    } else {
      level.items.push_back(std::move(value));
    }
    return true;
  }

  bool open(Level level) {
    if (levels_.size() >= kMaxJsonDepth) {
      return fail(fmt::format("nested deeper than {} levels", kMaxJsonDepth));
    }
    levels_.push_back(std::move(level));
    return true;
  }

  bool close() {
    Level level = std::move(levels_.back());
    levels_.pop_back();
    return add(level.is_object ? Json(std::move(level.members)) : Json(std::move(level.items)));
  }

  std::string_view text_;
  const char* const* furthest_;
  std::vector<Level> levels_;
  Json root_;
  Status status_;
};

template <typename Scalar>
std::string dump_scalar(const Scalar& value) {
  // Text that is not UTF-8 (a file name, say) must not stop a report: it is replaced.
  return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void append_newline(std::string& out, bool pretty, int depth) {
  if (!pretty) return;
  out += '\n';
  out.append(static_cast<size_t>(depth) * 2, ' ');
}

void append_json(std::string& out, const Json& value, bool pretty, int depth) {
  if (value.is_object() || value.is_array()) {
    bool is_object = value.is_object();
    size_t count = is_object ? value.members().size() : value.items().size();
    out += is_object ? '{' : '[';
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out += ',';
      append_newline(out, pretty, depth + 1);
      if (is_object) {
        out += dump_scalar(value.members()[i].first);
        out += pretty ? ": " : ":";
      }
      append_json(out, is_object ? value.members()[i].second : value.items()[i], pretty, depth + 1);
    }
    if (count > 0) append_newline(out, pretty, depth);
    out += is_object ? '}' : ']';
  } else if (value.is_string()) {
    out += dump_scalar(value.as_string());
  } else if (value.is_integer()) {
    out += std::to_string(value.as_integer());
  } else if (value.is_number()) {
    out += dump_scalar(value.as_number());
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else {
    out += "null";
  }
}

}  // namespace

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const auto& [name, value] : members()) {
    if (name == key) return &value;
  }
  return nullptr;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object{};
  Object& object = std::get<Object>(value_);
  for (auto& [name, value] : object) {
    if (name == key) return value;
  }
  return object.emplace_back(std::string(key), Json()).second;
}

void Json::push_back(Json item) {
  if (is_null()) value_ = Array{};
  std::get<Array>(value_).push_back(std::move(item));
}

std::string Json::dump(bool pretty) const {
  std::string out;
  append_json(out, *this, pretty, 0);
  return out;
}

Result<Json> Json::parse(std::string_view text) {
  const char* begin = text.data();
  const char* furthest = begin;
  JsonBuilder builder(text, &furthest);
  try {
    bool parsed =
        nlohmann::json::sax_parse(CountingIterator(begin, &furthest),
                                  CountingIterator(begin + text.size(), &furthest), &builder);
    if (!builder.status().is_ok()) return builder.status();
    if (!parsed) return invalid_argument("the text is not JSON");
  } catch (const std::exception& error) {
    return invalid_argument(fmt::format("the text is not JSON: {}", error.what()));
  }
  return builder.take_root();
}

std::string_view Json::type_name() const {
  if (is_null()) return "null";
  if (is_bool()) return "true or false";
  if (is_integer()) return "integer";
  if (is_number()) return "number";
  if (is_string()) return "text";
  return is_array() ? "list" : "table";
}

}  // namespace stagecoach
