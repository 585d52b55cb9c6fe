#pragma once

#include "model/gpt2_config.h"
#include "scheduler/network.h"

namespace stagecoach {

/// What the last layer of a GPT-2 network yields.
enum class Gpt2Head : uint8_t {
  kLoss,    ///< cross-entropy loss of each row, for training and evaluation
  kLogits,  ///< fp32 logits [rows, vocab_size], for generation; without dropout and backward pass
};

/// GPT-2 as a network. Layers: "embedding" (token ids int32 [rows, 1] in), "h.0" … "h.<n-1>",
/// "head" (final norm, then loss or logits). Blocks: wte (sites embedding and head: tied), wpe,
/// h.<i>, ln_f. Names are those of the Hugging Face file, with the prefix "transformer."; matrices
/// are [in, out]. A block's segments are the seven boundaries of the design: ln_1, c_attn,
/// attention, c_proj + residual, ln_2, c_fc (and its GELU), mlp.c_proj + residual. `dtype` is that
/// of compute copies and activations. Errors: invalid argument for a bad `config`.
Result<Network> make_gpt2(const Gpt2Config& config, Gpt2Head head, DType dtype);

}  // namespace stagecoach
