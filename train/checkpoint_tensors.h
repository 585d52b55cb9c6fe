#pragma once

#include <string>

#include "core/status.h"
#include "train/trainer.h"

namespace stagecoach {

/// Files of a checkpoint that hold tensors beside the weights: moments that the optimizer keeps,
/// and, of `async`, what devices read of the weights before the newest, which the next pass
/// computes with, in the model's dtype.
inline constexpr const char* kMomentsFile = "optimizer.safetensors";
inline constexpr const char* kPreviousFile = "previous.safetensors";

/// Writing into and reading from a checkpoint's `folder`. Errors: those of file operations; data
/// loss for a tensor that is missing or of another type or shape.
Status save_moments(const std::string& folder, Trainer& trainer);
Status load_moments(const std::string& folder, Trainer& trainer);
Status save_previous(const std::string& folder, const Trainer& trainer);
Status load_previous(const std::string& folder, Trainer& trainer);

/// sha256 of all of it that `trainer` holds, as it is kept, in block order.
Result<std::string> moments_sha256(Trainer& trainer);
std::string previous_sha256(const Trainer& trainer);

}  // namespace stagecoach
