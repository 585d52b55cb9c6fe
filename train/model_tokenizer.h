#pragma once

#include <string>

#include "core/status.h"
#include "train/token_source.h"

namespace stagecoach {

/// What a checkpoint calls a tokenizer that nobody named: of files without a header.
inline constexpr const char* kUnknownTokenizer = "unknown";

/// The tokenizer that the model in `folder` belongs to, by what a checkpoint says of its run, else
/// by the folder's tokenizer.json: "bytes", the sha256 of a tokenizer.json, or "unknown". Empty
/// where nothing says it. Errors: files that are there and cannot be read.
Result<std::string> model_tokenizer(const std::string& folder);

/// The sha256 of a folder's tokenizer.json. Errors: not found where it has none.
Result<std::string> folder_tokenizer(const std::string& folder);

/// Ok when `model`, a folder, may have been trained with `tokenizer` (as TokenSource has it); else
/// an invalid argument that names both, what has the tokenizer (`what`), and `advice`.
Status check_model_tokenizer(const std::string& model, const std::string& tokenizer,
                             const std::string& what, const std::string& advice);

}  // namespace stagecoach
