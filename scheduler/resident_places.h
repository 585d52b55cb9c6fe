#pragma once

#include <vector>

#include "core/bytes.h"
#include "hal/timepoint.h"

namespace stagecoach {

/// When places in the memory for parameters that stay on a device may be written again: after the
/// last kernel that reads what lies there (P2). Kernels are those of one stream, so they end in the
/// order in which they are noted.
class ResidentPlaces {
 public:
  /// All `size` bytes are free at `free`.
  void restart(ByteCount size, Timepoint free);
  /// When [offset, offset + size) may be written.
  Timepoint free_at(ByteCount offset, ByteCount size) const;
  /// Nobody reads [offset, offset + size) after `end`.
  void free(ByteCount offset, ByteCount size, Timepoint end);

 private:
  struct Place {
    ByteCount offset = 0, size = 0;
    Timepoint free;
  };
  std::vector<Place> places_;  ///< by the time when they are free
};

}  // namespace stagecoach
