#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"

namespace stagecoach {

/// Token ids of a data set in memory.
struct TokenData {
  std::vector<int32_t> tokens;
  int64_t source_bytes = 0;
  std::string digest;  ///< sha256 of the tokens, for resume checks
};

/// Separator between files in byte-level data, where the vocabulary has room for it.
inline constexpr int32_t kByteSeparator = 256;
/// Ids 0 to 255 are bytes.
inline constexpr int64_t kByteVocabulary = 256;

/// Reads text files as bytes (tokenizer "bytes"): files joined by the separator when `vocabulary` >
/// 256. A byte-order mark is dropped and CRLF becomes LF, so that editors do not change what is
/// learned; UTF-16 is refused by name. An unreadable or empty file is refused, naming it; so is
/// data shorter than one sequence plus its next token, with tokens found and needed.
Result<TokenData> read_byte_data(const std::vector<std::string>& files, int64_t vocabulary,
                                 int64_t sequence);

/// One batch: inputs and next-token labels, [sequences, sequence] each.
struct TokenBatch {
  std::vector<int32_t> inputs;
  std::vector<int32_t> labels;
  int64_t sequences = 0;
  int64_t sequence = 0;
};

/// Draws training batches. The data are cut into windows of sequence + 1 tokens at a stride of
/// `sequence`, shuffled anew each epoch by a keyed permutation; the batch of an iteration is a pure
/// function of (data, seed, iteration), so a resumed run continues exactly.
/// Thread rule: any thread.
class BatchSampler {
 public:
  /// `data` must outlive the sampler and hold at least one window. Fewer windows than `sequences`
  /// is allowed: a batch may then span epochs.
  BatchSampler(const TokenData& data, int64_t sequence, int64_t sequences, uint64_t seed);
  void fill(int64_t iteration, TokenBatch& batch) const;
  int64_t windows() const { return windows_; }
  /// Iterations in one pass over the data, at least 1.
  int64_t iterations_per_epoch() const;

 private:
  int64_t window_at(int64_t epoch, int64_t position) const;
  const TokenData* data_;
  int64_t sequence_;
  int64_t sequences_;
  uint64_t seed_;
  int64_t windows_;
};

/// Conditional entropy in nats per token of the empirical bigram distribution of `tokens`, from its
/// own counts: what a model that sees one token back can reach at best on them.
double bigram_entropy(std::span<const int32_t> tokens);

}  // namespace stagecoach
