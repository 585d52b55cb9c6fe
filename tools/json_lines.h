#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/status.h"

namespace stagecoach {

/// Calls `visit` with every line and its number, from 1; stops at the first failure.
Status for_each_line(std::string_view text,
                     const std::function<Status(std::string_view, int64_t)>& visit);

/// Members of objects that may lack them: 0, `otherwise` or empty then, or for another type.
double number_at(const Json& object, std::string_view key);
int64_t integer_at(const Json& object, std::string_view key, int64_t otherwise);
std::string text_at(const Json& object, std::string_view key);

}  // namespace stagecoach
