#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"
#include "hal/device.h"
#include "memory/pageable_memory.h"

namespace stagecoach {

/// Where a piece of host memory is needed: where not all can be pinned, the first pieces to do
/// without are those that devices never touch.
enum class PieceUse : uint8_t { kTravels, kStays };

/// How much of host memory is pinned.
struct Pinning {
  ByteCount asked = 0;
  ByteCount pinned = 0;
  ByteCount slow = 0;  ///< of pieces that travel and are not pinned

  Pinning& operator+=(const Pinning& other);
};

/// One exact-size allocation carved from the front: device memory or pinned host memory. Nothing is
/// returned piece by piece; the arena is freed as a whole. Where the system lets less be pinned
/// than is asked for, the rest is pageable: copies of it work and are slower.
/// Thread rule: one thread at a time.
class Arena {
 public:
  /// Pieces start at multiples of this, which suits vector code and every copy engine.
  static constexpr ByteCount kAlignment = 256;

  static Result<Arena> create_on_device(Device& device, ByteCount size, Label label);
  /// Errors: resource exhausted when the host has no such memory, pinned or not; others of the
  /// device.
  static Result<Arena> create_pinned(Device& device, ByteCount size, Label label);

  /// The next `size` bytes. The arena must have been created large enough: its owner computed it.
  BufferView take(ByteCount size, PieceUse use = PieceUse::kTravels);
  /// Forgets all pieces, so that the memory can be carved anew.
  void reset();
  ByteCount size() const { return size_; }
  Pinning pinning() const { return pinning_; }
  /// Space a piece of `size` bytes takes.
  static ByteCount padded(ByteCount size) { return align_up(size, kAlignment); }

 private:
  struct Part {
    BufferHandle buffer;  ///< null: there is none
    ByteCount used = 0;

    bool holds(ByteCount size) const {
      return buffer != nullptr && used + padded(size) <= buffer->size();
    }
  };
  explicit Arena(ByteCount size) : size_(size) {}

  ByteCount size_ = 0;
  Pinning pinning_;
  PageableMemory memory_;  ///< of `rest_`, so it goes last
  Part first_;             ///< all of it, or what could be pinned
  Part rest_;              ///< pageable: address space for all, of which pieces alone are touched
};

}  // namespace stagecoach
