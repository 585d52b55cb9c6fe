#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "model/safetensors.h"
#include "train/trainer.h"

namespace stagecoach {

/// Files of a checkpoint that hold tensors beside the weights: moments that the optimizer keeps,
/// and, of `async`, what devices read of the weights before the newest, which the next pass
/// computes with, in the model's dtype.
inline constexpr const char* kMomentsFile = "optimizer.safetensors";
inline constexpr const char* kPreviousFile = "previous.safetensors";

/// Name, type and shape of what the files hold, in block order; no data.
std::vector<SafetensorsTensor> weight_tensors(const Trainer& trainer);
std::vector<SafetensorsTensor> moment_tensors(const Trainer& trainer);
std::vector<SafetensorsTensor> previous_tensors(const Trainer& trainer);

/// How a parameter is called in the file of weights, and that file: adapters' have one as PEFT's.
std::string weight_name(const Network& network, const ParameterInfo& parameter);
const char* weights_file(const Network& network);

/// How a moment of a parameter, and the scales that 8-bit ones have, are called there.
std::string moment_name(const ParameterInfo& parameter, Moment moment);
inline constexpr const char* kScalesSuffix = ".scales";

/// Which moments there are.
std::span<const Moment> kept_moments(const MomentOptions& moments);

/// Reading from a checkpoint's `folder`. Errors: those of file operations; data loss for a tensor
/// that is missing or of another type or shape.
Status load_moments(const std::string& folder, Trainer& trainer);
Status load_previous(const std::string& folder, Trainer& trainer);

/// sha256 of all of it that `trainer` holds, as it is kept, in block order.
Result<std::string> moments_sha256(Trainer& trainer);
std::string previous_sha256(const Trainer& trainer);

}  // namespace stagecoach
