#include "train/model_tokenizer.h"

#include <filesystem>
#include <fmt/format.h>

#include "core/digest.h"
#include "core/file.h"
#include "core/json.h"

namespace stagecoach {

namespace {

std::string describe(const std::string& tokenizer) {
  if (tokenizer == kBytesTokenizer) return "the tokenizer \"bytes\"";
  if (tokenizer == kUnknownTokenizer) return "ids of an unknown tokenizer";
  return fmt::format("the tokenizer.json with sha256 {}", tokenizer);
}

}  // namespace

Result<std::string> model_tokenizer(const std::string& folder) {
  std::error_code ignored;
  std::string state = folder + "/trainer_state.json";
  if (std::filesystem::exists(state, ignored)) {
    STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(state));
    Result<Json> json = Json::parse(text);
    if (!json.is_ok()) return json.status().with_context(state);
    // Hugging Face's own trainer writes a file of this name too.
    bool is_ours = json->find("data_digest") != nullptr;
    const Json* tokenizer = json->find("tokenizer");
    bool says_it = tokenizer != nullptr && tokenizer->is_string();
    // Versions before this key trained on bytes alone.
    if (is_ours) return says_it ? tokenizer->as_string() : std::string(kBytesTokenizer);
  }
  if (!std::filesystem::exists(folder + "/tokenizer.json", ignored)) return std::string();
  return folder_tokenizer(folder);
}

Result<std::string> folder_tokenizer(const std::string& folder) {
  Result<std::string> content = read_file(folder + "/tokenizer.json");
  if (!content.is_ok()) {
    return content.status().with_context(
        fmt::format("'{}' is no folder with a readable tokenizer.json; name one that is", folder));
  }
  return sha256_hex(content->data(), static_cast<ByteCount>(content->size()));
}

Status check_model_tokenizer(const std::string& model, const std::string& tokenizer,
                             const std::string& what, const std::string& advice) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string expected, model_tokenizer(model));
  bool is_bytes = tokenizer == kBytesTokenizer;
  bool is_known = !expected.empty() && !tokenizer.empty();
  // Ids of files without a header may be those of any tokenizer, but bytes are seldom written so.
  bool may_agree = expected == tokenizer || (expected == kUnknownTokenizer && !is_bytes);
  if (!is_known || may_agree) return Status::ok();
  return invalid_argument(
      fmt::format("the model in '{}' was trained with {}, and {} {}; {}", model, describe(expected),
                  what, is_bytes ? "is read as bytes" : "has " + describe(tokenizer), advice));
}

}  // namespace stagecoach
