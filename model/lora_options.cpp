#include "model/lora_options.h"

#include <algorithm>
#include <cmath>

namespace stagecoach {

double LoraOptions::scale() const {
  auto size = static_cast<double>(rank);
  return alpha / (uses_rslora ? std::sqrt(size) : size);
}

bool LoraOptions::has_target(std::string_view name) const {
  return std::any_of(targets.begin(), targets.end(), [name](const std::string& target) {
    return target == kAllLinear || name == target || name.ends_with("." + target);
  });
}

std::vector<std::string> linear_targets(const Architecture& architecture) {
  if (architecture.family == ModelFamily::kGpt2) return {"c_attn", "c_fc", "c_proj"};
  if (architecture.has_experts()) return {"k_proj", "o_proj", "q_proj", "v_proj"};
  return {"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"};
}

}  // namespace stagecoach
