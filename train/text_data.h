#pragma once

#include "core/byte_source.h"
#include "train/token_source.h"

namespace stagecoach {

/// The bytes of a text file as tokens. A byte-order mark is dropped and CRLF becomes LF, so that
/// editors do not change what is learned; other bytes are taken as they are. `separate` appends the
/// separator. Errors: invalid argument for UTF-16, by name, and for an empty file; those of the
/// file; cancelled when an interrupt arrives (see InterruptGuard).
Result<TokenSource> read_text_tokens(const ByteSource& text, bool separate);

}  // namespace stagecoach
