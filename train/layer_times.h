#pragma once

#include "core/json.h"
#include "scheduler/layer_timing.h"

namespace stagecoach {

/// What `simulate --layer-times` reads: a layer's times for one micro-batch of
/// `tokens_per_micro_batch` on the fastest device, in ms, and its bytes. Hand-overs take what
/// boundary bytes take.
Json layer_times_to_json(const MeasuredRun& measured, int64_t tokens_per_micro_batch);

}  // namespace stagecoach
