#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "model/architecture.h"
#include "scheduler/network.h"

namespace stagecoach {

/// Longest sequence where none is given: enough for any loss to have settled.
inline constexpr int64_t kDefaultSequence = 1024;

/// What a command line says of a model to plan.
struct PlannedModelOptions {
  std::string model;
  std::string dtype;            ///< empty: fp32 for GPT-2, which trains in it, bf16 for the others
  int64_t sequence = 0;         ///< 0: the model's positions, at most `kDefaultSequence`
  int64_t sequences = 1;        ///< of a micro-batch, at least 1
  int64_t lora_rank = 0;        ///< 0: everything is trained, or MODEL's adapters
  bool maps_base = false;       ///< beside adapters: what is frozen stays in its files
  bool adapts_experts = false;  ///< beside a rank: adapters that training does not have
};

/// A model as planning and simulation see it.
struct PlannedModel {
  Architecture architecture;
  Network network;
  int64_t sequence = 0;
  int64_t positions = 0;
  std::vector<std::string> notes;  ///< what was assumed, a line each
};

/// Resolves MODEL and the rest. Errors: those of resolve_shape and make_shape_network; a sequence
/// below 1, or beyond positions that are learned; adapters that training refuses of a model that it
/// computes, and files that it cannot map.
Result<PlannedModel> resolve_planned_model(const PlannedModelOptions& options);

}  // namespace stagecoach
