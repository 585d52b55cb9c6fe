#include "memory/range_pool.h"

#include "core/check.h"

namespace stagecoach {

std::optional<ByteCount> RangePool::reserve(ByteCount bytes) {
  STAGECOACH_CHECK(bytes > 0);
  ByteCount offset = 0;
  for (const auto& [first, size] : taken_) {
    if (first - offset >= bytes) break;
    offset = first + size;
  }
  if (size_ - offset < bytes) return std::nullopt;
  taken_[offset] = bytes;
  return offset;
}

void RangePool::release(ByteCount offset) {
  STAGECOACH_CHECK(taken_.erase(offset) == 1);
}

}  // namespace stagecoach
