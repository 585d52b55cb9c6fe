#include "train/gradient_sources.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "core/check.h"
#include "core/flush_denormals.h"
#include "train/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "train/gradient_sources.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "train/simd_formats.h"

#ifndef STAGECOACH_GRADIENT_SOURCES_ONCE
#define STAGECOACH_GRADIENT_SOURCES_ONCE
namespace stagecoach {

inline constexpr int64_t kPieceElements = 64 * 1024;
/// Pieces that are added up side by side: the additions of one piece wait for each other.
inline constexpr int64_t kPiecesTogether = 8;
using PieceSums = std::array<double, kPiecesTogether>;

}  // namespace stagecoach
#endif

HWY_BEFORE_NAMESPACE();
namespace stagecoach::HWY_NAMESPACE {

/// Elements of each piece that are worked on at once: all of them stay in the first cache.
constexpr int64_t kSpan = 256;

/// sums[p] += squares of column p of `values`, whose rows are kSpan apart, in index order. Squares
/// of fp32 are exact in fp64, so fusing them into the sum changes no bit.
HWY_ATTR void add_squares(const float* values, PieceSums& sums) {
  const hn::CappedTag<double, kPiecesTogether> doubles;
  const hn::Rebind<float, decltype(doubles)> floats;
  const hn::Rebind<int32_t, decltype(doubles)> indices;
  const size_t lanes = hn::Lanes(doubles);
  for (size_t piece = 0; piece < kPiecesTogether; piece += 2 * lanes) {
    // Two sums at once, where a vector does not hold all pieces.
    bool both = piece + lanes < kPiecesTogether;
    auto rows = hn::Mul(hn::Iota(indices, 0), hn::Set(indices, static_cast<int32_t>(kSpan)));
    const float* low_values = values + static_cast<int64_t>(piece) * kSpan;
    const float* high_values = both ? low_values + static_cast<int64_t>(lanes) * kSpan : low_values;
    auto low = hn::LoadU(doubles, &sums[piece]);
    auto high = hn::LoadU(doubles, &sums[both ? piece + lanes : piece]);
    for (int64_t i = 0; i < kSpan; ++i) {
      auto value = hn::PromoteTo(doubles, hn::GatherIndex(floats, low_values + i, rows));
      low = hn::MulAdd(value, value, low);
      if (!both) continue;
      value = hn::PromoteTo(doubles, hn::GatherIndex(floats, high_values + i, rows));
      high = hn::MulAdd(value, value, high);
    }
    hn::StoreU(low, doubles, &sums[piece]);
    if (both) hn::StoreU(high, doubles, &sums[piece + lanes]);
  }
}

/// Sums of squares of the pieces from `first_piece` on; 0 for those past the end.
PieceSums sum_pieces(const GradientSources& gradients, int64_t first_piece, int64_t count) {
  PieceSums sums = {};
  alignas(64) float values[kPiecesTogether * kSpan];
  for (int64_t offset = 0; offset < kPieceElements; offset += kSpan) {
    if (first_piece * kPieceElements + offset >= count) break;
    for (int64_t piece = 0; piece < kPiecesTogether; ++piece) {
      int64_t begin = (first_piece + piece) * kPieceElements + offset;
      int64_t size = std::clamp<int64_t>(count - begin, 0, kSpan);
      float* row = values + piece * kSpan;
      if (size > 0) add_up(gradients, begin, size, row);
      // Adding zeros changes no sum.
      if (size < kSpan) std::fill(row + size, row + kSpan, 0.0f);
    }
    add_squares(values, sums);
  }
  return sums;
}

}  // namespace stagecoach::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stagecoach {

namespace {
HWY_EXPORT(sum_pieces);
}  // namespace

double sum_of_squares(const GradientSources& gradients, int64_t count, TaskPool& pool) {
  STAGECOACH_CHECK(count >= 0 && !gradients.sources.empty());
  int64_t pieces = (count + kPieceElements - 1) / kPieceElements;
  int64_t groups = (pieces + kPiecesTogether - 1) / kPiecesTogether;
  std::vector<PieceSums> sums(static_cast<size_t>(groups));
  pool.parallel_for(groups, [&](int64_t group) {
    FlushDenormals flush;
    sums[static_cast<size_t>(group)] =
        HWY_DYNAMIC_DISPATCH(sum_pieces)(gradients, group * kPiecesTogether, count);
  });
  double total = 0.0;
  for (const PieceSums& group : sums) {
    for (double piece : group) total += piece;
  }
  return total;
}

}  // namespace stagecoach
#endif
