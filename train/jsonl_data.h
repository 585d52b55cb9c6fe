#pragma once

#include <cstdint>

#include "core/byte_source.h"
#include "train/token_source.h"

namespace stagecoach {

/// How JSONL records become byte-level tokens.
struct JsonlOptions {
  bool has_separator = true;  ///< the vocabulary has kByteSeparator
};

/// One document a record of a JSONL file: a JSON object a line, blank lines apart, which has one of
///   text                 the text, all of it to be predicted
///   prompt, completion   both texts; only the completion is to be predicted
///   messages             [{"role": "system" | "user" | "assistant" | "tool", "content": TEXT}, …];
///                        only what the assistant says is to be predicted
/// as the first record has it; other keys are not looked at. `text` and `completion` end in the
/// separator where there is one, to be predicted too. A message becomes "<|role|>\n" content "\n";
/// the assistant's ends in the separator, where there is one, instead of "\n". Errors: invalid
/// argument that names file, line and, of bytes that are not UTF-8, their place, what was found and
/// what is expected; those of the file; cancelled when an interrupt arrives (see InterruptGuard).
Result<TokenSource> read_jsonl_tokens(const ByteSource& text, const JsonlOptions& options);

}  // namespace stagecoach
