#pragma once

#include <array>
#include <cstdint>

namespace stagecoach {

/// What Ops::sum_of_squares means, for host and devices: pieces of so many elements; in a piece
/// lane l adds up in fp64, in index order, the squares of the elements whose index is l in the
/// lanes' number, and the lanes are added up by halves; then the pieces in order. As many lanes as
/// a group of a GPU has, and enough for a processor not to wait for one addition before the next.
inline constexpr int64_t kSquarePieceElements = 64 * 1024;
inline constexpr int64_t kSquareLanes = 32;
using SquareLanes = std::array<double, kSquareLanes>;

/// Lane l and l + 16, then l and l + 8, and so on. Pure.
inline double add_square_lanes(SquareLanes lanes) {
  for (size_t half = kSquareLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace stagecoach
