#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/status.h"
#include "train/token_source.h"

namespace stagecoach {

/// Bytes read so far, and in all.
using ScanWatch = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

/// Reads every byte of all sources once, on all threads this process may use, checks that every id
/// is below `vocabulary` and below what its file says, and returns the digest: the sha256 of the
/// sha256 of every 4 Mi ids of each source, of its mask and of its documents, and of tokenizers and
/// counts. It does not depend on the number of threads. Errors: invalid argument that names file,
/// position, id and vocabulary; those of the files; cancelled when an interrupt arrives (see
/// InterruptGuard).
Result<std::string> scan_tokens(const std::vector<TokenSource>& sources, int64_t vocabulary,
                                const ScanWatch& watch = nullptr);

/// What is wrong with an id of `source` at token `position` (from 0).
Status id_out_of_range(const TokenSource& source, int64_t position, int64_t id, int64_t vocabulary);

}  // namespace stagecoach
