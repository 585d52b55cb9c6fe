#pragma once

#include <cstdint>

#include "hal/host_queue.h"

namespace stagecoach {

/// Reads all blocks as they are at one version, while passes and updates go on: updates of what has
/// not been read yet wait (P1), those of what has been go on.
class BlockReader {
 public:
  virtual ~BlockReader() = default;

  /// Where `read` and `finish` run, one after another. Jobs there do not fail.
  virtual HostQueue& queue() = 0;
  /// Pieces of a block, so that a slow reader is not taken for one that hangs.
  virtual int piece_count(int block) const = 0;
  /// Reads a piece. Nothing of the block is written meanwhile.
  virtual void read(int block, int piece) = 0;
  /// After the last of them. Nothing waits for it.
  virtual void finish() = 0;
};

}  // namespace stagecoach
