#include "memory/arena.h"

#include <algorithm>

namespace stagecoach {

Result<Arena> Arena::create_on_device(Device& device, ByteCount size, Label label) {
  size = std::max(size, kAlignment);
  STAGECOACH_ASSIGN_OR_RETURN(BufferHandle buffer,
                              require_buffer(device.allocate(size, label), device, size, label));
  return Arena(std::move(buffer), size);
}

Result<Arena> Arena::create_pinned(Device& device, ByteCount size, Label label) {
  size = std::max(size, kAlignment);
  STAGECOACH_ASSIGN_OR_RETURN(
      BufferHandle buffer,
      require_buffer(device.allocate_pinned(size, label), device, size, label));
  return Arena(std::move(buffer), size);
}

BufferView Arena::take(ByteCount size) {
  STAGECOACH_CHECK(size >= 0 && used_ + padded(size) <= size_);
  BufferView view = buffer_->slice(used_, size);
  used_ += padded(size);
  return view;
}

}  // namespace stagecoach
