#pragma once

#include "model/gpt2_config.h"
#include "model/lora_options.h"
#include "model/network_head.h"
#include "scheduler/network.h"

namespace stagecoach {

/// GPT-2 as a network. Layers: "embedding" (token ids int32 [rows, 1] in), "h.0" … "h.<n-1>",
/// "head" (final norm, then loss or logits). Blocks: wte (sites embedding and head: tied), wpe,
/// h.<i>, ln_f. Names are those of the Hugging Face file, with the prefix "transformer."; matrices
/// are [in, out]. A block's segments are the seven boundaries of the design: ln_1, c_attn,
/// attention, c_proj + residual, ln_2, c_fc (and its GELU), mlp.c_proj + residual. `dtype` is that
/// of compute copies and activations. With adapters (LoraBlocks) all of these are frozen.
/// `has_documents` as make_network has it. Errors:
/// invalid argument for a bad `config`; those of LoraBlocks::check.
Result<Network> make_gpt2(const Gpt2Config& config, NetworkHead head, DType dtype,
                          const LoraOptions& lora = {}, bool has_documents = false);

}  // namespace stagecoach
