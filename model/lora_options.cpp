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

}  // namespace stagecoach
