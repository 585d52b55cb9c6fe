#include "train/jsonl_data.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "train/interrupt.h"
#include "train/line_reader.h"
#include "train/text_encoding.h"
#include "train/token_builder.h"

namespace stagecoach {

namespace {

enum class RecordKind { kText, kPrompt, kMessages };

constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};
constexpr std::string_view kAssistant = "assistant";
/// Keys that messages list before they say how many more there are.
constexpr size_t kListedKeys = 8;

std::string keys_of(const Json& record) {
  std::vector<std::string> keys;
  for (const auto& member : record.members()) {
    if (keys.size() == kListedKeys) {
      return fmt::format("{} and {} more", fmt::join(keys, ", "),
                         record.members().size() - kListedKeys);
    }
    keys.push_back(Json(member.first).dump());
  }
  return keys.empty() ? "no keys" : fmt::format("{}", fmt::join(keys, ", "));
}

/// The text that `object` has at `key`.
Result<std::string_view> text_at(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  if (value == nullptr) {
    return invalid_argument(
        fmt::format("has no \"{}\"; its keys are {}; add it", key, keys_of(object)));
  }
  if (!value->is_string()) {
    return invalid_argument(
        fmt::format("has {} as \"{}\"; expected text", value->type_name(), key));
  }
  return std::string_view(value->as_string());
}

Result<RecordKind> kind_of(const Json& record) {
  bool is_text = record.find("text") != nullptr;
  bool is_messages = record.find("messages") != nullptr;
  bool is_prompt = record.find("prompt") != nullptr || record.find("completion") != nullptr;
  if (is_text + is_messages + is_prompt != 1) {
    return invalid_argument(
        fmt::format("has the keys {}; expected one of: \"text\"; \"messages\"; \"prompt\" and "
                    "\"completion\"",
                    keys_of(record)));
  }
  return is_text ? RecordKind::kText : is_messages ? RecordKind::kMessages : RecordKind::kPrompt;
}

/// Turns the records of one file into documents.
class RecordReader {
 public:
  RecordReader(const JsonlOptions& options, TokenBuilder& builder)
      : has_separator_(options.has_separator), builder_(builder) {}

  /// Errors say what is wrong with the line, without naming it.
  Status add(std::string_view line);

 private:
  Status add_prompt(const Json& record);
  Status add_messages(const Json& record);
  Status add_message(const Json& message);

  bool has_separator_;
  TokenBuilder& builder_;
  bool is_first_ = true;
  RecordKind kind_ = RecordKind::kText;
};

Status RecordReader::add(std::string_view line) {
  if (int64_t at = first_invalid_utf8(line); at >= 0) {
    return invalid_argument(
        fmt::format("is not UTF-8 at its byte {} (0x{:02x}); convert the file, for example with "
                    "iconv -f GBK -t UTF-8",
                    at + 1, static_cast<unsigned char>(line[static_cast<size_t>(at)])));
  }
  Result<Json> record = Json::parse(line);
  if (!record.is_ok()) {
    return invalid_argument(fmt::format("is not JSON: {}; every line must be one whole object",
                                        record.status().message()));
  }
  if (!record->is_object()) {
    return invalid_argument(fmt::format("is a {}; expected an object, such as {{\"text\": \"…\"}}",
                                        record->type_name()));
  }
  STAGECOACH_ASSIGN_OR_RETURN(RecordKind kind, kind_of(*record));
  if (!is_first_ && kind != kind_) {
    return invalid_argument(
        fmt::format("has the keys {}; the records before it are of another kind; split the file",
                    keys_of(*record)));
  }
  is_first_ = false;
  kind_ = kind;
  builder_.start_document();
  if (kind == RecordKind::kPrompt) return add_prompt(*record);
  if (kind == RecordKind::kMessages) return add_messages(*record);
  STAGECOACH_ASSIGN_OR_RETURN(std::string_view text, text_at(*record, "text"));
  builder_.append(text, true);
  if (has_separator_) builder_.append_separator(true);
  return Status::ok();
}

Status RecordReader::add_prompt(const Json& record) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string_view prompt, text_at(record, "prompt"));
  STAGECOACH_ASSIGN_OR_RETURN(std::string_view completion, text_at(record, "completion"));
  builder_.append(prompt, false);
  builder_.append(completion, true);
  if (has_separator_) builder_.append_separator(true);
  return Status::ok();
}

Status RecordReader::add_messages(const Json& record) {
  const Json& messages = *record.find("messages");
  if (!messages.is_array() || messages.items().empty()) {
    return invalid_argument(fmt::format(
        "has {} as \"messages\"; expected a list of one or more {{\"role\": …, \"content\": …}}",
        messages.is_array() ? "an empty list" : messages.type_name()));
  }
  for (size_t i = 0; i < messages.items().size(); ++i) {
    Status status = add_message(messages.items()[i]);
    if (!status.is_ok()) {
      return invalid_argument(fmt::format("message {} {}", i + 1, status.message()));
    }
  }
  return Status::ok();
}

Status RecordReader::add_message(const Json& message) {
  if (!message.is_object()) {
    return invalid_argument(fmt::format("is {}; expected an object", message.type_name()));
  }
  STAGECOACH_ASSIGN_OR_RETURN(std::string_view role, text_at(message, "role"));
  STAGECOACH_ASSIGN_OR_RETURN(std::string_view content, text_at(message, "content"));
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    return invalid_argument(
        fmt::format("has the role {}; allowed: {}", Json(role).dump(), fmt::join(kRoles, ", ")));
  }
  bool is_target = role == kAssistant;
  builder_.append(fmt::format("<|{}|>\n", role), false);
  builder_.append(content, is_target);
  if (is_target && has_separator_) {
    builder_.append_separator(true);
  } else {
    builder_.append("\n", is_target);
  }
  return Status::ok();
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

Status check_encoding(const ByteSource& text) {
  std::string probe(static_cast<size_t>(std::min(kEncodingProbeBytes, text.size())), '\0');
  STAGECOACH_RETURN_IF_ERROR(text.read(0, probe.data(), static_cast<ByteCount>(probe.size())));
  std::string_view encoding = wide_encoding(probe);
  if (encoding.empty()) return Status::ok();
  return invalid_argument(
      fmt::format("'{}' looks like {}; JSONL is UTF-8: convert it, for example with iconv -f "
                  "UTF-16 -t UTF-8",
                  text.name(), encoding));
}

}  // namespace

Result<TokenSource> read_jsonl_tokens(const ByteSource& text, const JsonlOptions& options) {
  STAGECOACH_RETURN_IF_ERROR(check_encoding(text));
  TokenBuilder builder;
  RecordReader records(options, builder);
  LineReader lines(text);
  while (true) {
    if (InterruptGuard::is_interrupted()) return cancelled("reading data was interrupted");
    STAGECOACH_ASSIGN_OR_RETURN(bool is_there, lines.next());
    if (!is_there) break;
    if (is_blank(lines.line())) continue;
    Status status = records.add(lines.line());
    if (!status.is_ok()) {
      return invalid_argument(
          fmt::format("'{}' line {} {}", text.name(), lines.number(), status.message()));
    }
  }
  if (builder.count() == 0) {
    return invalid_argument(
        fmt::format("'{}' is empty: it holds no text in any record; give a file that does, or "
                    "leave it out",
                    text.name()));
  }
  return builder.finish(text.name(), true);
}

}  // namespace stagecoach
