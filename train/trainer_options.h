#pragma once

#include <cstddef>
#include <cstdint>

#include "core/status.h"
#include "train/trainer.h"
#include "train/update_kernel.h"

namespace stagecoach {

/// Most tokens of an iteration. Beyond it, sizes of activations would no longer be numbers of 63
/// bits.
inline constexpr int64_t kMostTokens = int64_t{1} << 36;

/// Refuses options that contradict each other, what this version does not have, and `devices` that
/// the schedule cannot use. Pure.
Status check_trainer_options(const TrainerOptions& options, size_t devices);

/// Refuses what this version's optimizers do not do. Pure.
Status check_optimizer(const TrainerOptions& options);

/// Whether updates wait for the norm of all gradients, be it for clipping or for a loss scale.
bool updates_wait_for_norm(const TrainerOptions& options, DType dtype);
/// How the optimizer of checked options updates.
UpdateRule update_rule(const TrainerOptions& options);
/// The moments it keeps.
MomentOptions moment_options(const TrainerOptions& options);
/// The numbers of its update number `step`, from 1, that all parameters share.
UpdateNumbers common_update_numbers(const TrainerOptions& options, int64_t step);

}  // namespace stagecoach
