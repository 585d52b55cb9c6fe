#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/bytes.h"
#include "core/status.h"
#include "hal/device.h"

namespace stagecoach {

/// One exact-size allocation carved from the front: device memory or pinned host memory. Nothing is
/// returned piece by piece; the arena is freed as a whole.
/// Thread rule: one thread at a time.
class Arena {
 public:
  /// Pieces start at multiples of this, which suits vector code and every copy engine.
  static constexpr ByteCount kAlignment = 256;

  static Result<Arena> create_on_device(Device& device, ByteCount size, Label label);
  static Result<Arena> create_pinned(Device& device, ByteCount size, Label label);

  /// The next `size` bytes. The arena must have been created large enough: its owner computed it.
  BufferView take(ByteCount size);
  /// Forgets all pieces, so that the memory can be carved anew.
  void reset() { used_ = 0; }
  ByteCount size() const { return size_; }
  /// Space a piece of `size` bytes takes.
  static ByteCount padded(ByteCount size) { return align_up(size, kAlignment); }

 private:
  Arena(BufferHandle buffer, ByteCount size) : buffer_(std::move(buffer)), size_(size) {}
  BufferHandle buffer_;
  ByteCount size_ = 0;
  ByteCount used_ = 0;
};

}  // namespace stagecoach
