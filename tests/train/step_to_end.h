#pragma once

#include "train/trainer.h"

namespace stagecoach {

/// One optimizer step, to its end.
inline Result<StepUpdate> step_to_end(Trainer& trainer, double learning_rate) {
  STAGECOACH_RETURN_IF_ERROR(trainer.step(learning_rate));
  STAGECOACH_RETURN_IF_ERROR(trainer.synchronize());
  return trainer.take_updates().back();
}

}  // namespace stagecoach
