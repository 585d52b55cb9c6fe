#pragma once

#include <cstdint>

#include "core/status.h"
#include "model/architecture.h"
#include "scheduler/network.h"

namespace stagecoach {

/// What is trained of a model, and in what type it computes.
struct ShapeOptions {
  DType dtype = DType::kBF16;  ///< of compute copies and boundaries
  /// 0: all parameters. Else the base is frozen and every matrix of attention and MLP has two
  /// adapters of this rank; norms, biases, embedding and head have none.
  int64_t lora_rank = 0;
  bool has_documents = false;    ///< as make_network has it
  bool has_router_loss = false;  ///< of experts: layers report their balance
  bool adapts_experts = false;   ///< router and experts have them too, which training does not have
};

/// A network that can be planned but does not compute: parameters, boundaries, activations and FLOP
/// of `architecture`, through the same engine as layers that do (make_segment_layer). Layers:
/// "embedding", "layers.0" …, "head" (norm and fused loss; logits exist in pieces only). A layer is
/// one block, with LoRA two: the frozen base and its adapters. Dropout is left out. Experts: FLOP
/// are those of the experts that tokens choose; memory has the worst case of one expert's rows at a
/// time; all experts' parameters are in the block and travel. Errors: those of check_architecture;
/// invalid argument for a rank below 0 or above kMostLoraRank, or another dtype than fp32, bf16 or
/// fp16.
Result<Network> make_shape_network(const Architecture& architecture, const ShapeOptions& options);

}  // namespace stagecoach
