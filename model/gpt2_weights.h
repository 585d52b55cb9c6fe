#pragma once

#include <functional>
#include <span>
#include <string>

#include "core/status.h"
#include "scheduler/network.h"

namespace stagecoach {

/// How a file names the parameters of GPT-2.
enum class WeightNaming : uint8_t {
  kPrefixed,  ///< "transformer.h.0.…", as GPT2LMHeadModel saves
  kBare,      ///< "h.0.…", as GPT2Model and the published files do
};

/// Gives fp32 parameters of `block` from element `offset` on, as many as `out` has.
using ParameterSource = std::function<void(int block, int64_t offset, std::span<float> out)>;
/// Takes them.
using ParameterSink =
    std::function<Status(int block, int64_t offset, std::span<const float> values)>;

/// Gives every parameter of `folder`/model.safetensors to `sink`, in pieces. Names with and without
/// "transformer." are read; mask buffers ("attn.bias", "attn.masked_bias") and unknown empty
/// tensors are skipped; a tied "lm_head.weight" must equal the token embedding, or may stand in for
/// it. Any other tensor, a missing one, or one of another shape is refused by name before
/// `sink` is called. `naming`, unless null, receives the file's naming, to save with the same.
Status load_weights(const std::string& folder, const Network& network, const ParameterSink& sink,
                    WeightNaming* naming = nullptr);

/// Writes every parameter once, as fp32, to `folder`/model.safetensors (crash-safe); the tied head
/// is not written again.
Status save_weights(const std::string& folder, const Network& network,
                    const ParameterSource& source, WeightNaming naming = WeightNaming::kPrefixed);

}  // namespace stagecoach
