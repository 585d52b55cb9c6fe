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
  Arena arena(std::max(size, kAlignment));
  STAGECOACH_ASSIGN_OR_RETURN(
      arena.first_.buffer,
      require_buffer(device.allocate(arena.size_, label), device, arena.size_, label));
  return arena;
}

namespace {

/// The most of `size` bytes, in sixteenths, that the system lets be pinned; a null buffer: none.
Result<BufferHandle> pin_what_can_be(Device& device, ByteCount size, const Label& label) {
  constexpr int kShares = 16;
  for (int share = kShares; share > 0; --share) {
    ByteCount part =
        share == kShares ? size : size / kShares * share / Arena::kAlignment * Arena::kAlignment;
    if (part == 0) break;
    Allocation allocation = device.allocate_pinned(part, label);
    if (allocation.outcome == AllocationOutcome::kExhausted) continue;
    return require_buffer(std::move(allocation), device, part, label);
  }
  return BufferHandle();
}

}  // namespace

Result<Arena> Arena::create_pinned(Device& device, ByteCount size, Label label) {
  Arena arena(std::max(size, kAlignment));
  STAGECOACH_ASSIGN_OR_RETURN(arena.first_.buffer, pin_what_can_be(device, arena.size_, label));
  arena.pinning_.asked = arena.size_;
  if (arena.first_.buffer != nullptr) arena.pinning_.pinned = arena.first_.buffer->size();
  if (arena.pinning_.pinned == arena.size_) return arena;
  Result<PageableMemory> memory = PageableMemory::create(arena.size_);
  if (!memory.is_ok()) {
    return memory.status().with_context(
        fmt::format("host memory for '{}', of which {} of {} bytes could be pinned", label.view(),
                    arena.pinning_.pinned, arena.size_));
  }
  arena.memory_ = std::move(memory).value();
  STAGECOACH_ASSIGN_OR_RETURN(arena.rest_.buffer,
                              device.wrap_pageable(arena.memory_.data(), arena.size_, label));
  return arena;
}

BufferView Arena::take(ByteCount size, PieceUse use) {
  bool may_stay = use == PieceUse::kStays && rest_.buffer != nullptr;
  Part& part = first_.holds(size) && !may_stay ? first_ : rest_;
  STAGECOACH_CHECK(size >= 0 && part.holds(size));
  if (&part == &rest_ && use == PieceUse::kTravels) pinning_.slow += padded(size);
  BufferView view = part.buffer->slice(part.used, size);
  part.used += padded(size);
  return view;
}

void Arena::reset() {
  first_.used = rest_.used = 0;
  pinning_.slow = 0;
}

}  // namespace stagecoach
