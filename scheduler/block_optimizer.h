#pragma once

#include <cstdint>

#include "core/bytes.h"
#include "core/status.h"
#include "core/task_pool.h"

namespace stagecoach {

/// What a step does with its gradients once their norm is known.
struct StepVerdict {
  bool skip = false;          ///< nothing is updated
  double gradient_scale = 1;  ///< what every gradient is multiplied by
};

/// What an optimizer does with blocks, as one step asks for it: functions of host memory that
/// return when they are done, whatever does the work. The scheduler says when they run. Thread
/// rule: `judge` and `updating_device` on the controller's thread, the rest on those of the queues,
/// updates of different blocks at a time.
class BlockOptimizer {
 public:
  virtual ~BlockOptimizer() = default;

  /// Whether updates wait for the norm of all gradients: clipping and loss scaling need it.
  virtual bool is_gated() const = 0;
  /// Of the gradients that the update of `block` will read. Finite exactly when they are.
  virtual double sum_of_squares(int block, TaskPool& pool) = 0;
  /// Verdict from the sum over all blocks, in their order. A failure ends the run with nothing
  /// updated by this step. Where updates are not gated, it comes after them and can only fail.
  virtual Result<StepVerdict> judge(double sum_of_squares) = 0;
  /// Updates elements [first, first + count) of `block`.
  virtual Status update(int block, int64_t first, int64_t count, const StepVerdict& verdict,
                        TaskPool& pool) = 0;

  /// Which of the devices updates `block`, so that its update runs on that one's queue; -1: the
  /// host does. The same in every step.
  virtual int updating_device(int block) const { return -1; }

  /// Host memory that the two touch for a whole block, in bytes.
  virtual ByteCount sum_bytes(int block) const = 0;
  virtual ByteCount update_bytes(int block) const = 0;
};

}  // namespace stagecoach
