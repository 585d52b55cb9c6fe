#include "train/gradient_sources.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "core/check.h"
#include "hal/host_access.h"
#include "train/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "train/gradient_sources.cpp"
#include <hwy/cache_control.h>
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
constexpr int64_t kSpan = 64;
constexpr int64_t kPrefetchElements = 8 * kSpan;

using Doubles = hn::CappedTag<double, 4>;
using DoubleVector = hn::Vec<Doubles>;

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
#define STAGECOACH_FOUR_DOUBLES 1
/// Where doubles are four a vector: the sums of rows 0 to 3 and of rows 4 to 7 of `values`, whose
/// rows are kSpan apart, go on side by side. Four elements of four rows are turned at once.
struct FourRows {
  using Four = hn::CappedTag<float, 4>;
  using Two = hn::Repartition<double, Four>;

  template <typename Pair>
  HWY_ATTR static DoubleVector add_square(Pair values, DoubleVector sum) {
    auto value = hn::PromoteTo(Doubles(), hn::BitCast(Four(), values));
    return hn::MulAdd(value, value, sum);
  }
  /// sums + squares of four elements of each row, in index order.
  HWY_ATTR static DoubleVector add(const float* values, DoubleVector sums) {
    const Four four;
    const Two two;
    auto row = [values](int64_t index)
                   HWY_ATTR { return hn::LoadU(Four(), values + index * kSpan); };
    auto low = hn::BitCast(two, hn::InterleaveLower(four, row(0), row(1)));
    auto low_next = hn::BitCast(two, hn::InterleaveLower(four, row(2), row(3)));
    auto high = hn::BitCast(two, hn::InterleaveUpper(four, row(0), row(1)));
    auto high_next = hn::BitCast(two, hn::InterleaveUpper(four, row(2), row(3)));
    sums = add_square(hn::InterleaveLower(two, low, low_next), sums);
    sums = add_square(hn::InterleaveUpper(two, low, low_next), sums);
    sums = add_square(hn::InterleaveLower(two, high, high_next), sums);
    return add_square(hn::InterleaveUpper(two, high, high_next), sums);
  }
};
#else
#define STAGECOACH_FOUR_DOUBLES 0
#endif

/// sums[p] += squares of row p of `values`, whose rows are kSpan apart, in index order. Squares of
/// fp32 are exact in fp64, so fusing them into the sum changes no bit.
HWY_ATTR void add_squares(const float* values, PieceSums& sums) {
  static_assert(kPiecesTogether == 8);
#if STAGECOACH_FOUR_DOUBLES
  DoubleVector low = hn::LoadU(Doubles(), &sums[0]), high = hn::LoadU(Doubles(), &sums[4]);
  for (int64_t i = 0; i < kSpan; i += 4) {
    low = FourRows::add(values + i, low);
    high = FourRows::add(values + 4 * kSpan + i, high);
  }
  hn::StoreU(low, Doubles(), &sums[0]);
  hn::StoreU(high, Doubles(), &sums[4]);
#else
  for (int64_t i = 0; i < kSpan; ++i) {
    for (int64_t piece = 0; piece < kPiecesTogether; ++piece) {
      double value = values[piece * kSpan + i];
      sums[static_cast<size_t>(piece)] += value * value;
    }
  }
#endif
}
#undef STAGECOACH_FOUR_DOUBLES

/// Asks for what is read soon: the processor itself does not keep up with many pieces at once.
void prefetch_span(const GradientSources& gradients, int64_t begin) {
  constexpr int64_t kLine = 64;
  int64_t element = dtype_size_bytes(gradients.dtype);
  for (const void* source : gradients.sources) {
    const char* bytes = static_cast<const char*>(source) + begin * element;
    for (int64_t at = 0; at < kSpan * element; at += kLine) hwy::Prefetch(bytes + at);
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
      if (begin + kPrefetchElements < count) prefetch_span(gradients, begin + kPrefetchElements);
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
  for (const void* source : gradients.sources) {
    note_host_read(source, count * dtype_size_bytes(gradients.dtype), "norm");
  }
  pool.parallel_for(groups, [&](int64_t group) {
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
