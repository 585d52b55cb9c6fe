#pragma once

#include <functional>
#include <span>
#include <string>

#include "model/weight_transfer.h"

namespace stagecoach {

/// Gives fp32 parameters of `block` from element `offset` on, as many as `out` has.
using ParameterSource = std::function<void(int block, int64_t offset, std::span<float> out)>;

/// Writes every parameter once, as fp32, to `folder`/model.safetensors (crash-safe); the tied head
/// is not written again.
Status save_weights(const std::string& folder, const Network& network,
                    const ParameterSource& source, WeightNaming naming = WeightNaming::kPrefixed);

}  // namespace stagecoach
