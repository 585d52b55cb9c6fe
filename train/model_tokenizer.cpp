#include "train/model_tokenizer.h"

#include <filesystem>
#include <fmt/format.h>

#include "core/digest.h"
#include "core/file.h"
#include "core/json.h"

namespace stagecoach {

Result<std::string> model_tokenizer(const std::string& folder) {
  std::error_code ignored;
  std::string state = folder + "/trainer_state.json";
  if (std::filesystem::exists(state, ignored)) {
    STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(state));
    Result<Json> json = Json::parse(text);
    if (!json.is_ok()) return json.status().with_context(state);
    const Json* tokenizer = json->find("tokenizer");
    // Versions before this key trained on bytes alone.
    return tokenizer != nullptr && tokenizer->is_string() ? tokenizer->as_string()
                                                          : std::string(kBytesTokenizer);
  }
  std::string file = folder + "/tokenizer.json";
  if (!std::filesystem::exists(file, ignored)) return std::string();
  STAGECOACH_ASSIGN_OR_RETURN(std::string content, read_file(file));
  return sha256_hex(content.data(), static_cast<ByteCount>(content.size()));
}

Status check_byte_model(const std::string& model, const std::string& what,
                        const std::string& advice) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string tokenizer, model_tokenizer(model));
  if (tokenizer.empty() || tokenizer == kBytesTokenizer) return Status::ok();
  return invalid_argument(fmt::format(
      "the model in '{}' was trained with {}, and {} would be read as bytes; {}", model,
      tokenizer == kUnknownTokenizer
          ? "ids of an unknown tokenizer"
          : fmt::format("another tokenizer than \"bytes\" (tokenizer.json with sha256 {})",
                        tokenizer),
      what, advice));
}

}  // namespace stagecoach
