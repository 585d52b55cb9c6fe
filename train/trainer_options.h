#pragma once

#include <cstddef>

#include "core/status.h"
#include "train/trainer.h"

namespace stagecoach {

/// Refuses options that contradict each other, what this version does not have, and `devices` that
/// the schedule cannot use. Pure.
Status check_trainer_options(const TrainerOptions& options, size_t devices);

}  // namespace stagecoach
