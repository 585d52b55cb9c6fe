#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace stagecoach {

/// Which sequence of `capacity` tokens each piece goes into: the longest piece first, each into the
/// fullest sequence that still holds it (best fit decreasing; Johnson, 1973). Sequences are
/// numbered in the order of their first pieces. Lengths are from 1 to `capacity`. Pure.
std::vector<int64_t> pack_best_fit(std::span<const int64_t> lengths, int64_t capacity);

}  // namespace stagecoach
