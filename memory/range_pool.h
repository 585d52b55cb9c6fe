#pragma once

#include <map>
#include <optional>

#include "core/bytes.h"

namespace stagecoach {

/// Which ranges of a fixed size are taken: the lowest that fits is taken first. Thread rule: one
/// thread at a time.
class RangePool {
 public:
  explicit RangePool(ByteCount size) : size_(size) {}

  /// The offset of `bytes`, at least 1, that nobody has; nothing where no range is large enough.
  std::optional<ByteCount> reserve(ByteCount bytes);
  /// Gives back the range at `offset`, which was reserved.
  void release(ByteCount offset);

 private:
  ByteCount size_;
  std::map<ByteCount, ByteCount> taken_;  ///< sizes by offset
};

}  // namespace stagecoach
