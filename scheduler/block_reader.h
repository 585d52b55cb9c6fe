#pragma once

#include <cstdint>

#include "core/task_pool.h"
#include "hal/host_queue.h"

namespace stagecoach {

/// Reads all blocks as they are at one version, while passes and updates go on: updates of what has
/// not been read yet wait (P1), those of what has been go on. One that has memory for it copies
/// what an update would wait for, which then goes on, and reads the copy.
class BlockReader {
 public:
  virtual ~BlockReader() = default;

  /// Where `read` and `finish` run, one after another. Jobs there do not fail.
  virtual HostQueue& queue() = 0;
  /// Pieces of a block, so that a slow reader is not taken for one that hangs.
  virtual int piece_count(int block) const = 0;
  /// Reads a piece, of the block, of which nothing is written meanwhile, or of its copy.
  virtual void read(int block, int piece, bool from_copy) = 0;
  /// After the last of them. Nothing waits for it.
  virtual void finish() = 0;

  /// Where `copy` runs, while `read` may take long. Jobs there do not fail.
  virtual HostQueue& copy_queue() { return queue(); }
  /// Whether there is room now to copy a block, which is then taken. On the executor's thread.
  virtual bool reserve_copy(int /*block*/) { return false; }
  /// Copies it. Nothing of the block is written meanwhile.
  virtual void copy(int /*block*/, TaskPool& /*pool*/) {}
  /// The copy is not needed any more. On the executor's thread.
  virtual void release_copy(int /*block*/) {}
};

}  // namespace stagecoach
