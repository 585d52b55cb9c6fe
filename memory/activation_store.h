#pragma once

#include <optional>
#include <vector>

#include "memory/arena.h"

namespace stagecoach {

/// Pinned host memory for what travels between stages: one piece per (boundary, micro-batch). It
/// holds the activation until the stage above the boundary has read it for its backward, then the
/// gradient that this same action makes of it: whoever else reads the activation has done so, since
/// the gradient follows from its results.
/// Thread rule: pieces are independent; the caller orders accesses to one piece.
class ActivationStore {
 public:
  /// `boundary_bytes[b]` is the size of boundary b of one micro-batch; 0 where nothing is kept.
  static Result<ActivationStore> create(Device& pinning_device,
                                        const std::vector<ByteCount>& boundary_bytes,
                                        int micro_batches);
  /// What `create` allocates. Pure.
  static ByteCount bytes(const std::vector<ByteCount>& boundary_bytes, int micro_batches);

  BufferView piece(int boundary, int micro_batch) const {
    return pieces_[static_cast<size_t>(boundary) * micro_batches_ + micro_batch];
  }
  ByteCount size() const { return arena_->size(); }
  Pinning pinning() const { return arena_->pinning(); }

 private:
  int micro_batches_ = 0;
  std::optional<Arena> arena_;
  std::vector<BufferView> pieces_;
};

}  // namespace stagecoach
