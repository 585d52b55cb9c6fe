#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/status.h"
#include "model/model_source.h"

namespace stagecoach {

/// A prompt as a model reads it.
struct EncodedPrompt {
  std::vector<int32_t> ids;
  std::vector<int32_t> end_ids;  ///< what ends an answer
  int64_t vocabulary = 0;        ///< ids of answers are below it
};

/// Prompts as ids, and ids as text. Thread rule: one thread.
class PromptTokenizer {
 public:
  virtual ~PromptTokenizer() = default;
  /// `is_chat`: as what a user says, by the model's chat template. Errors: invalid argument for
  /// prompts of no token, and chats without a template.
  virtual Result<EncodedPrompt> encode(const std::string& prompt, bool is_chat) = 0;
  /// What the ids from `first` on add to the text of those before.
  virtual Result<std::string> added_text(const std::vector<int32_t>& ids, int64_t first) = 0;
};

/// The tokenizer of a model: bytes, or by stagecoach-prepare, which lies beside this program, that
/// of the folder `chosen`, or where that is empty of the model's own folder. Errors: invalid
/// argument where the model's is not there, is not known, or is another than the chosen one, with
/// what to give; what stagecoach-prepare refuses.
Result<std::unique_ptr<PromptTokenizer>> open_prompt_tokenizer(const ModelSource& source,
                                                               const std::string& chosen);

}  // namespace stagecoach
