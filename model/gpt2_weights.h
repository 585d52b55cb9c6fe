#pragma once

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

/// Fills the fp32 memory of every block (`block_data[i]`: element_count floats of block i;
/// alignment gaps are left alone) from `folder`/model.safetensors. Names with and without
/// "transformer." are read; mask buffers ("attn.bias", "attn.masked_bias") and unknown empty
/// tensors are skipped; a tied "lm_head.weight" must equal the token embedding, or may stand in for
/// it. Any other tensor, a missing one, or one of another shape is refused by name before any
/// memory is written. `naming`, unless null, receives the file's naming, to save with the same.
Status load_weights(const std::string& folder, const Network& network,
                    std::span<float* const> block_data, WeightNaming* naming = nullptr);

/// Writes every parameter once, as fp32, to `folder`/model.safetensors (crash-safe); the tied head
/// is not written again.
Status save_weights(const std::string& folder, const Network& network,
                    std::span<const float* const> block_data,
                    WeightNaming naming = WeightNaming::kPrefixed);

}  // namespace stagecoach
