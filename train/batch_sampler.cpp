#include "train/batch_sampler.h"

#include <bit>
#include <limits>

#include "core/random.h"

namespace stagecoach {

namespace {

/// Rounds of the keyed permutation; four make a Feistel network pseudo-random (Luby, Rackoff).
constexpr uint32_t kPermutationRounds = 4;
/// Keeps the shuffle's random stream apart from those of layers.
constexpr uint32_t kShuffleSite = 0x5348'5546;

}  // namespace

BatchSampler::BatchSampler(const TokenWindows& windows, int64_t sequences, uint64_t seed)
    : windows_(&windows), sequences_(sequences), seed_(seed) {
  STAGECOACH_CHECK(sequences > 0);
}

int64_t BatchSampler::iterations_of(int64_t epochs) const {
  int64_t most = std::numeric_limits<int64_t>::max() - sequences_;
  if (epochs > most / windows_->count()) return most / sequences_;
  return (epochs * windows_->count() + sequences_ - 1) / sequences_;
}

int64_t BatchSampler::window_at(int64_t epoch, int64_t position) const {
  // A Feistel network permutes [0, 4^half_bits); walking on until the value is a window makes it a
  // permutation of the windows, without a table to build, keep or save.
  uint64_t windows = static_cast<uint64_t>(windows_->count());
  uint32_t half_bits = (std::bit_width(windows) + 1) / 2;
  uint64_t half_mask = (uint64_t{1} << half_bits) - 1;
  RandomKey key{seed_, static_cast<uint32_t>(epoch), 0, 0, kShuffleSite};
  uint64_t value = static_cast<uint64_t>(position);
  do {
    uint64_t left = value >> half_bits;
    uint64_t right = value & half_mask;
    for (uint32_t round = 0; round < kPermutationRounds; ++round) {
      key.layer = round;
      uint64_t mixed = left ^ (random_word(key, right) & half_mask);
      left = right;
      right = mixed;
    }
    value = (left << half_bits) | right;
  } while (value >= windows);
  return static_cast<int64_t>(value);
}

Status BatchSampler::fill(int64_t iteration, TokenBatch& batch) const {
  STAGECOACH_CHECK(iteration >= 0);
  batch.sequences = sequences_;
  batch.sequence = windows_->sequence();
  batch.inputs.resize(static_cast<size_t>(batch.sequences * batch.sequence));
  batch.labels.resize(batch.inputs.size());
  bool has_documents = windows_->data().packing == Packing::kDocuments;
  batch.document_starts.resize(has_documents ? batch.inputs.size() : 0);
  for (int64_t i = 0; i < sequences_; ++i) {
    int64_t drawn = iteration * sequences_ + i;
    int64_t window = window_at(drawn / windows_->count(), drawn % windows_->count());
    int64_t first = i * batch.sequence;
    STAGECOACH_RETURN_IF_ERROR(
        windows_->read(window, batch.inputs.data() + first, batch.labels.data() + first,
                       has_documents ? batch.document_starts.data() + first : nullptr));
  }
  return Status::ok();
}

}  // namespace stagecoach
