#include "memory/arena.h"

#include <algorithm>
#include <fmt/format.h>

namespace stagecoach {

Pinning& Pinning::operator+=(const Pinning& other) {
  asked += other.asked;
  pinned += other.pinned;
  slow += other.slow;
  return *this;
}

Result<Arena> Arena::create_on_device(Device& device, ByteCount size, Label label) {
  Arena arena(device, std::max(size, kAlignment), label);
  Allocation allocation = device.allocate(arena.size_, label);
  STAGECOACH_ASSIGN_OR_RETURN(arena.buffer_,
                              require_buffer(std::move(allocation), device, arena.size_, label));
  return arena;
}

Result<Arena> Arena::create_pinned(Device& device, ByteCount size, Label label) {
  Arena arena(device, std::max(size, kAlignment), label);
  arena.pinning_.asked = arena.size_;
  Allocation allocation = device.allocate_pinned(arena.size_, label);
  if (allocation.outcome != AllocationOutcome::kExhausted) {
    STAGECOACH_ASSIGN_OR_RETURN(arena.buffer_,
                                require_buffer(std::move(allocation), device, arena.size_, label));
    arena.pinning_.pinned = arena.size_;
    return arena;
  }
  Result<PageableMemory> memory = PageableMemory::create(arena.size_);
  if (!memory.is_ok()) {
    return memory.status().with_context(
        fmt::format("host memory for '{}', which could not be pinned either", label.view()));
  }
  arena.memory_ = std::move(memory).value();
  STAGECOACH_ASSIGN_OR_RETURN(arena.buffer_,
                              device.wrap_pageable(arena.memory_.data(), arena.size_, label));
  return arena;
}

BufferHandle Arena::pin_piece(ByteCount size) {
  if (size >= least_refused_) return nullptr;
  // Whatever the reason of a refusal: the piece is pageable then, and is counted as such.
  Allocation allocation = device_->allocate_pinned(size, label_);
  if (allocation.outcome != AllocationOutcome::kOk) least_refused_ = size;
  return std::move(allocation.buffer);
}

BufferView Arena::take(ByteCount size, PieceUse use) {
  bool is_pageable = buffer_->kind() == MemoryKind::kHostPageable;
  if (is_pageable && use == PieceUse::kTravels) {
    if (BufferHandle piece = pin_piece(size)) {
      pinning_.pinned += size;
      pinned_pieces_.push_back(std::move(piece));
      return pinned_pieces_.back()->view();
    }
    pinning_.slow += padded(size);
  }
  STAGECOACH_CHECK(size >= 0 && used_ + padded(size) <= size_);
  BufferView view = buffer_->slice(used_, size);
  used_ += padded(size);
  return view;
}

}  // namespace stagecoach
