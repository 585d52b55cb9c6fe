#include "tools/prompt_tokenizer.h"

#include <filesystem>
#include <fmt/format.h>
#include <limits>

#include "core/json.h"
#include "tools/line_process.h"
#include "train/model_tokenizer.h"
#include "train/text_encoding.h"
#include "train/token_builder.h"

namespace stagecoach {

namespace {

namespace fs = std::filesystem;

class ByteTokenizer final : public PromptTokenizer {
 public:
  Result<EncodedPrompt> encode(const std::string& prompt, bool is_chat) override {
    if (is_chat) {
      return invalid_argument(
          "--chat needs a chat template, and the tokenizer \"bytes\" has none; leave it out");
    }
    EncodedPrompt encoded;
    for (unsigned char byte : prompt) encoded.ids.push_back(byte);
    encoded.end_ids = {kByteSeparator};
    encoded.vocabulary = kByteVocabulary + 1;
    return encoded;
  }

  Result<std::string> added_text(const std::vector<int32_t>& ids, int64_t first) override {
    std::string text;
    for (auto id = ids.begin() + first; id != ids.end(); ++id) {
      text += *id < kByteVocabulary ? static_cast<char>(*id) : '\n';
    }
    return text;
  }
};

/// A Hugging Face tokenizer, spoken to through stagecoach-prepare --pipe.
class FolderTokenizer final : public PromptTokenizer {
 public:
  explicit FolderTokenizer(LineProcess process) : process_(std::move(process)) {}

  Result<EncodedPrompt> encode(const std::string& prompt, bool is_chat) override {
    if (int64_t place = first_invalid_utf8(prompt); place >= 0) {
      return invalid_argument(fmt::format("is not UTF-8 at its byte {}; correct it", place));
    }
    Json request = Json::object();
    request["prompt"] = prompt;
    request["chat"] = is_chat;
    STAGECOACH_ASSIGN_OR_RETURN(Json answer, ask(request));
    EncodedPrompt encoded;
    const Json* vocabulary = answer.find("vocabulary");
    bool is_whole = vocabulary != nullptr && vocabulary->is_integer() &&
                    take_ids(answer.find("ids"), encoded.ids) &&
                    take_ids(answer.find("end_ids"), encoded.end_ids);
    if (!is_whole) return strange(answer);
    encoded.vocabulary = vocabulary->as_integer();
    return encoded;
  }

  Result<std::string> added_text(const std::vector<int32_t>& ids, int64_t first) override {
    Json request = Json::object();
    for (int32_t id : ids) request["ids"].push_back(id);
    request["from"] = first;
    STAGECOACH_ASSIGN_OR_RETURN(Json answer, ask(request));
    const Json* text = answer.find("text");
    if (text == nullptr || !text->is_string()) return strange(answer);
    return text->as_string();
  }

 private:
  Result<Json> ask(const Json& request) {
    STAGECOACH_ASSIGN_OR_RETURN(std::string line, process_.ask(request.dump()));
    Result<Json> answer = Json::parse(line);
    if (!answer.is_ok()) return answer.status().with_context("stagecoach-prepare");
    const Json* error = answer->find("error");
    if (error == nullptr) return answer;
    return invalid_argument(error->is_string() ? error->as_string() : error->dump());
  }

  static Status strange(const Json& answer) {
    return data_loss(
        fmt::format("stagecoach-prepare answers '{}', which is none of --pipe; "
                    "install both programs from one version",
                    answer.dump()));
  }

  static bool take_ids(const Json* list, std::vector<int32_t>& ids) {
    if (list == nullptr || !list->is_array()) return false;
    for (const Json& id : list->items()) {
      bool fits = id.is_integer() && id.as_integer() >= 0 &&
                  id.as_integer() <= std::numeric_limits<int32_t>::max();
      if (!fits) return false;
      ids.push_back(static_cast<int32_t>(id.as_integer()));
    }
    return true;
  }

  LineProcess process_;
};

/// stagecoach-prepare lies beside this program.
Result<std::string> find_prepare() {
  std::error_code error;
  fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return io_error("/proc/self/exe cannot be read: " + error.message());
  fs::path script = program.parent_path() / "stagecoach-prepare";
  if (fs::exists(script, error)) return script.string();
  return not_found(fmt::format(
      "'{}' is not there; prompts of models with a tokenizer.json need it: install it beside {}",
      script.string(), program.filename().string()));
}

/// The tokenizer that the model belongs to, as model_tokenizer has it, and the folder that says it.
struct Known {
  std::string tokenizer, folder;
};

Result<Known> known_tokenizer(const ModelSource& source) {
  for (const std::string& folder : {source.name, source.base_path}) {
    if (folder.empty()) continue;
    STAGECOACH_ASSIGN_OR_RETURN(std::string tokenizer, model_tokenizer(folder));
    if (!tokenizer.empty()) return Known{tokenizer, folder};
  }
  return Known{};
}

/// Ok when the model may have been trained with `tokenizer`, which `what` has.
Status check_known(const Known& known, const std::string& tokenizer, const std::string& what,
                   const std::string& advice) {
  if (known.folder.empty()) return Status::ok();
  return check_model_tokenizer(known.folder, tokenizer, what, advice);
}

/// The folder that `chosen` names; empty: bytes.
Result<std::string> check_chosen(const Known& known, const std::string& chosen) {
  std::string what = fmt::format("--tokenizer \"{}\"", chosen);
  const char* advice = "name the folder that has the model's tokenizer.json";
  if (chosen == kBytesTokenizer) {
    STAGECOACH_RETURN_IF_ERROR(check_known(known, chosen, what, advice));
    return std::string();
  }
  STAGECOACH_ASSIGN_OR_RETURN(std::string found, folder_tokenizer(chosen));
  STAGECOACH_RETURN_IF_ERROR(check_known(known, found, what, advice));
  return chosen;
}

/// The folder to take the tokenizer from; empty: bytes.
Result<std::string> choose_folder(const ModelSource& source, const std::string& chosen) {
  STAGECOACH_ASSIGN_OR_RETURN(Known known, known_tokenizer(source));
  if (!chosen.empty()) return check_chosen(known, chosen);
  if (known.tokenizer.empty() || known.tokenizer == kBytesTokenizer) return std::string();
  for (const std::string& folder : {known.folder, source.base_path}) {
    std::error_code ignored;
    if (folder.empty() || !fs::exists(folder + "/tokenizer.json", ignored)) continue;
    STAGECOACH_ASSIGN_OR_RETURN(std::string found, folder_tokenizer(folder));
    if (found == known.tokenizer) return folder;
  }
  STAGECOACH_RETURN_IF_ERROR(
      check_known(known, kBytesTokenizer, "--prompt",
                  "give the folder that holds its tokenizer.json, such as that of the model that "
                  "training began with: --tokenizer DIR"));
  return std::string();
}

}  // namespace

Result<std::unique_ptr<PromptTokenizer>> open_prompt_tokenizer(const ModelSource& source,
                                                               const std::string& chosen) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string folder, choose_folder(source, chosen));
  if (folder.empty()) {
    int64_t vocabulary = source.architecture().vocabulary;
    if (vocabulary >= kByteVocabulary) {
      return std::unique_ptr<PromptTokenizer>(std::make_unique<ByteTokenizer>());
    }
    return invalid_argument(
        fmt::format("the vocabulary of '{}' is {}; the byte tokenizer needs {} or more; give the "
                    "folder of its tokenizer.json: --tokenizer DIR",
                    source.name, vocabulary, kByteVocabulary));
  }
  STAGECOACH_ASSIGN_OR_RETURN(std::string script, find_prepare());
  STAGECOACH_ASSIGN_OR_RETURN(
      LineProcess process, LineProcess::start(script, {"--tokenizer", folder, "--pipe", "--json"}));
  return std::unique_ptr<PromptTokenizer>(std::make_unique<FolderTokenizer>(std::move(process)));
}

}  // namespace stagecoach
