#pragma once

#include <optional>
#include <vector>

#include "memory/arena.h"

namespace stagecoach {

/// Pinned host memory for what travels between stages: one piece per (boundary, micro-batch), for
/// activations and for gradients, kept until the stage that reads it has run.
/// Thread rule: pieces are independent; the caller orders accesses to one piece.
class ActivationStore {
 public:
  /// `boundary_bytes[b]` is the size of boundary b of one micro-batch; 0 where nothing is kept.
  static Result<ActivationStore> create(Device& pinning_device,
                                        const std::vector<ByteCount>& boundary_bytes,
                                        int micro_batches);

  BufferView activation(int boundary, int micro_batch) const {
    return activations_[index(boundary, micro_batch)];
  }
  BufferView gradient(int boundary, int micro_batch) const {
    return gradients_[index(boundary, micro_batch)];
  }
  ByteCount size() const { return arena_->size(); }

 private:
  size_t index(int boundary, int micro_batch) const {
    return static_cast<size_t>(boundary) * micro_batches_ + micro_batch;
  }
  int micro_batches_ = 0;
  std::optional<Arena> arena_;
  std::vector<BufferView> activations_;
  std::vector<BufferView> gradients_;
};

}  // namespace stagecoach
