#pragma once

#include <span>
#include <string>
#include <string_view>

namespace stagecoach {

/// The candidate most like `name`, for "unknown key X, did you mean Y"; empty when none is near.
/// Letter case and '-' for '_' cost nothing; the first of equals wins.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace stagecoach
