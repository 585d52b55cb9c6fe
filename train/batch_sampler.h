#pragma once

#include <cstdint>
#include <vector>

#include "train/token_windows.h"

namespace stagecoach {

/// One batch: inputs and next-token labels, [sequences, sequence] each, and document starts as
/// Trainer takes them where sequences hold several; else none.
struct TokenBatch {
  std::vector<int32_t> inputs;
  std::vector<int32_t> labels;
  std::vector<int32_t> document_starts;
  int64_t sequences = 0;
  int64_t sequence = 0;
};

/// Draws training batches: the sequences of a data set, shuffled anew each epoch by a keyed
/// permutation. The batch of an iteration is a pure function of (data, seed, iteration), so a
/// resumed run continues exactly.
/// Thread rule: any thread.
class BatchSampler {
 public:
  /// `windows` must outlive the sampler. Fewer of them than `sequences` are allowed: a batch may
  /// then span epochs.
  BatchSampler(const TokenWindows& windows, int64_t sequences, uint64_t seed);
  /// Errors: those of TokenWindows::read.
  Status fill(int64_t iteration, TokenBatch& batch) const;
  /// Iterations that draw every sequence `epochs` times or more. Saturates instead of overflowing.
  int64_t iterations_of(int64_t epochs) const;

 private:
  int64_t window_at(int64_t epoch, int64_t position) const;
  const TokenWindows* windows_;
  int64_t sequences_;
  uint64_t seed_;
};

}  // namespace stagecoach
