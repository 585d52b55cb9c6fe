#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/architecture.h"

namespace stagecoach {

/// The target that stands for every linear module of the layers.
inline constexpr std::string_view kAllLinear = "all-linear";

inline constexpr int64_t kMostLoraRank = 1 << 16;

/// Adapters to train beside a frozen model: y += scale * B (A x) for every linear module that a
/// target names, as PEFT has it. Plain data.
struct LoraOptions {
  int64_t rank = 0;  ///< rows of A and columns of B; 0: no adapters
  double alpha = 0;
  bool uses_rslora = false;  ///< scale = alpha / sqrt(rank) instead of alpha / rank
  /// kAllLinear alone, or names: a module whose name is one, or ends with a dot and it.
  std::vector<std::string> targets;

  bool is_on() const { return rank > 0; }
  /// What B (A x) counts times.
  double scale() const;
  /// Whether the module called `name` ("model.layers.0.self_attn.q_proj") has adapters.
  bool has_target(std::string_view name) const;
};

/// The names that kAllLinear stands for in models of this shape; of those with experts attention's,
/// since experts' matrices are no modules.
std::vector<std::string> linear_targets(const Architecture& architecture);

}  // namespace stagecoach
