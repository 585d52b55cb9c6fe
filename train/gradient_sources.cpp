#include "train/gradient_sources.h"

#include <algorithm>
#include <vector>

#include "core/check.h"
#include "hal/host_access.h"
#include "hal/square_sum.h"
#include "train/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "train/gradient_sources.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "train/simd_formats.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::HWY_NAMESPACE {

using Doubles = hn::ScalableTag<double>;
using DoubleVector = hn::Vec<Doubles>;
constexpr auto kDoubles = static_cast<int64_t>(hn::MaxLanes(Doubles()));
constexpr int64_t kVectors = kSquareLanes / kDoubles;
static_assert(kVectors * kDoubles == kSquareLanes);

/// Elements that are added up or converted at once before they are squared: in the first cache.
constexpr int64_t kSpan = 1024;
constexpr int64_t kPrefetchBytes = 4096;

HWY_ATTR HWY_INLINE DoubleVector load_doubles(const float* values) {
  return hn::PromoteTo(Doubles(), hn::LoadU(hn::Rebind<float, Doubles>(), values));
}
HWY_ATTR HWY_INLINE DoubleVector load_doubles(const BFloat16* values) {
  const hn::Rebind<uint16_t, Doubles> halves;
  const hn::Rebind<uint32_t, Doubles> words;
  auto bits = hn::ShiftLeft<16>(hn::PromoteTo(words, hn::LoadU(halves, &values->bits)));
  return hn::PromoteTo(Doubles(), hn::BitCast(hn::Rebind<float, Doubles>(), bits));
}

/// lanes += squares of `count` values, which is a multiple of their number. Squares of fp32 are
/// exact in fp64, so fusing them into the sum changes no bit.
template <typename Storage>
HWY_ATTR void add_squares(const Storage* values, int64_t count, SquareLanes& lanes) {
  constexpr int64_t kLine = 64;
  DoubleVector sums[kVectors];
  for (int64_t k = 0; k < kVectors; ++k) {
    sums[k] = hn::LoadU(Doubles(), &lanes[static_cast<size_t>(k * kDoubles)]);
  }
  for (int64_t i = 0; i < count; i += kSquareLanes) {
    const auto* ahead = reinterpret_cast<const char*>(values + i) + kPrefetchBytes;
    constexpr int64_t kBytes = kSquareLanes * int64_t{sizeof(Storage)};
    for (int64_t line = 0; line < kBytes; line += kLine) hwy::Prefetch(ahead + line);
    for (int64_t k = 0; k < kVectors; ++k) {
      DoubleVector value = load_doubles(values + i + k * kDoubles);
      sums[k] = hn::MulAdd(value, value, sums[k]);
    }
  }
  for (int64_t k = 0; k < kVectors; ++k) {
    hn::StoreU(sums[k], Doubles(), &lanes[static_cast<size_t>(k * kDoubles)]);
  }
}

/// Likewise elements [begin, end) of what `gradients` add up to, any number of them.
void add_sums(const GradientSources& gradients, int64_t begin, int64_t end, SquareLanes& lanes) {
  alignas(64) float values[kSpan];
  for (int64_t at = begin; at < end; at += kSpan) {
    int64_t size = std::min(kSpan, end - at);
    add_up(gradients, at, size, values);
    // Adding zeros changes no sum.
    int64_t whole = (size + kSquareLanes - 1) / kSquareLanes * kSquareLanes;
    std::fill(values + size, values + whole, 0.0f);
    add_squares(values, whole, lanes);
  }
}

/// The sum of squares of elements [begin, end), a piece.
double sum_piece(const GradientSources& gradients, int64_t begin, int64_t end) {
  SquareLanes lanes = {};
  int64_t whole = begin;  // as far as squares are taken from where the gradients lie
  if (gradients.sources.size() == 1 && gradients.dtype != DType::kF16) {
    whole += (end - begin) / kSquareLanes * kSquareLanes;
    const void* source = gradients.sources[0];
    if (gradients.dtype == DType::kBF16) {
      add_squares(static_cast<const BFloat16*>(source) + begin, whole - begin, lanes);
    } else {
      add_squares(static_cast<const float*>(source) + begin, whole - begin, lanes);
    }
  }
  add_sums(gradients, whole, end, lanes);
  return add_square_lanes(lanes);
}

}  // namespace stagecoach::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stagecoach {

namespace {
HWY_EXPORT(sum_piece);
}  // namespace

double sum_of_squares(const GradientSources& gradients, int64_t count, TaskPool& pool) {
  STAGECOACH_CHECK(count >= 0 && !gradients.sources.empty());
  int64_t pieces = (count + kSquarePieceElements - 1) / kSquarePieceElements;
  std::vector<double> sums(static_cast<size_t>(pieces));
  for (const void* source : gradients.sources) {
    note_host_read(source, count * dtype_size_bytes(gradients.dtype), "norm");
  }
  pool.parallel_for(pieces, [&](int64_t piece) {
    int64_t begin = piece * kSquarePieceElements;
    int64_t end = std::min(count, begin + kSquarePieceElements);
    sums[static_cast<size_t>(piece)] = HWY_DYNAMIC_DISPATCH(sum_piece)(gradients, begin, end);
  });
  double total = 0.0;
  for (double piece : sums) total += piece;
  return total;
}

}  // namespace stagecoach
#endif
