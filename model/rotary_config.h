#pragma once

#include "core/status.h"
#include "model/config_fields.h"
#include "model/rotary_scaling.h"

namespace stagecoach {

/// Reads how positions turn heads from a config.json: `rope_parameters`, as transformers writes it
/// since version 5, or `rope_theta` and `rope_scaling` as before, or both if they agree.
/// `positions` is the default of the original length. Refused by name: unknown kinds of scaling,
/// numbers that a kind lacks or does not have, factors below 1, numbers per layer type, and heads
/// that turn in part.
Result<RotaryScaling> read_rotary(ConfigFields& fields, int64_t positions);

}  // namespace stagecoach
