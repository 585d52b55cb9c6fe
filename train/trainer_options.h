#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"
#include "train/trainer.h"

namespace stagecoach {

/// Most tokens of an iteration. Beyond it, sizes of activations would no longer be numbers of 63
/// bits.
inline constexpr int64_t kMostTokens = int64_t{1} << 36;

/// Refuses options that contradict each other, what this version does not have, and `devices` that
/// the schedule cannot use. Pure.
Status check_trainer_options(const TrainerOptions& options, size_t devices);

}  // namespace stagecoach
