#include "memory/arena.h"

#include <algorithm>
#include <cstring>
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

namespace {

/// Whether a device says so of memory that it does not pin. Ranges that the system does not let it
/// lock are an "invalid value" to CUDA (github.com/sgl-project/sglang, pull request 39744).
bool is_refusal(StatusCode code) {
  return code == StatusCode::kResourceExhausted || code == StatusCode::kInvalidArgument ||
         code == StatusCode::kUnimplemented;
}

}  // namespace

Result<Arena> Arena::create_registered(Device& device, std::span<const ByteCount> pieces,
                                       Label label, const PinSetup& setup) {
  ByteCount size = 0;
  for (ByteCount piece : pieces) size += padded(piece);
  // Memory of simulated devices is address space alone, which nobody may touch.
  if (size == 0 || device.virtual_time() != nullptr) return create_pinned(device, size, label);
  Result<RegisteredMemory> memory = RegisteredMemory::create(
      device, cut_into_pieces(pieces, kAlignment, setup.piece_bytes), label, setup);
  if (memory.is_ok()) {
    Arena arena(device, size, label);
    arena.pinning_.asked = arena.pinning_.pinned = size;
    arena.registered_ = std::move(memory).value();
    return arena;
  }
  if (!is_refusal(memory.status().code())) return memory.status();
  STAGECOACH_ASSIGN_OR_RETURN(Arena arena, create_pinned(device, size, label));
  arena.is_cleared_ = true;
  return arena;
}

BufferHandle Arena::pin_piece(ByteCount size) {
  if (size >= least_refused_) return nullptr;
  // Whatever the reason of a refusal: the piece is pageable then, and is counted as such.
  Allocation allocation = device_->allocate_pinned(size, label_);
  if (allocation.outcome != AllocationOutcome::kOk) least_refused_ = size;
  return std::move(allocation.buffer);
}

BufferView Arena::take_registered(ByteCount size) {
  const std::vector<HostPiece>& pieces = registered_->pieces();
  if (used_ + padded(size) > pieces[piece_].start + pieces[piece_].size) {
    STAGECOACH_CHECK(++piece_ < pieces.size());
    used_ = pieces[piece_].start;
  }
  BufferView view = registered_->buffer(piece_).slice(used_ - pieces[piece_].start, size);
  used_ += padded(size);
  return view;
}

BufferView Arena::take(ByteCount size, PieceUse use) {
  if (registered_) return take_registered(size);
  bool is_pageable = buffer_->kind() == MemoryKind::kHostPageable;
  if (is_pageable && use == PieceUse::kTravels) {
    if (BufferHandle piece = pin_piece(size)) {
      pinning_.pinned += size;
      if (is_cleared_) std::memset(piece->host_data(), 0, static_cast<size_t>(size));
      pinned_pieces_.push_back(std::move(piece));
      return pinned_pieces_.back()->view();
    }
    pinning_.slow += padded(size);
  }
  STAGECOACH_CHECK(size >= 0 && used_ + padded(size) <= size_);
  BufferView view = buffer_->slice(used_, size);
  used_ += padded(size);
  // Also where the system cleared it: what was admitted is taken now rather than when it is used.
  if (is_cleared_) std::memset(view.host_data(), 0, static_cast<size_t>(size));
  return view;
}

}  // namespace stagecoach
