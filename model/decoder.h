#pragma once

#include "model/decoder_config.h"
#include "model/lora_options.h"
#include "model/network_head.h"
#include "scheduler/network.h"

namespace stagecoach {

/// A Llama, Qwen3, Qwen3-MoE or GPT-OSS model as a network, for sequences of up to `sequence`
/// tokens. Layers: "embedding" (token ids int32 [rows, 1] in), "layers.0" … "layers.<n-1>", "head"
/// (final norm, then loss or logits). Blocks: tokens (sites embedding and head where they are
/// tied), rotary (a constant, see HeadRotation), layers.<i>, norm, and lm_head where it is its own.
/// Names and shapes are those of the Hugging Face file: matrices are [out, in], and those of one
/// product lie side by side. `dtype` is that of compute copies and activations. Errors: invalid
/// argument for a bad `config`. With adapters (LoraBlocks) all of these are frozen; `has_documents`
/// as make_network has it; errors: those of LoraBlocks::check.
Result<Network> make_decoder(const DecoderConfig& config, NetworkHead head, DType dtype,
                             int64_t sequence, const LoraOptions& lora = {},
                             bool has_documents = false);

}  // namespace stagecoach
