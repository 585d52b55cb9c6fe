#pragma once

#include <cstdint>
#include <string>

namespace stagecoach {

/// Learning rate of iteration `iteration` (from 0): linear warm-up to `peak` over `warmup`
/// iterations, then "cosine" or "linear" decay to `floor_fraction` * peak at `total`, or
/// "constant".
double learning_rate_at(int64_t iteration, int64_t total, double peak, int64_t warmup,
                        const std::string& decay, double floor_fraction);

}  // namespace stagecoach
