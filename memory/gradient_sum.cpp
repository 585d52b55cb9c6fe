#include "memory/gradient_sum.h"

#include <algorithm>

#include "core/flush_denormals.h"

namespace stagecoach {

namespace {

/// Fixed tiles, so that the work is cut the same way for any number of threads.
constexpr int64_t kSumTileElements = 64 * 1024;

template <typename Storage>
void add_into(const void* gradients, float* sum, int64_t count, bool overwrites, TaskPool& pool) {
  const auto* source = static_cast<const Storage*>(gradients);
  pool.parallel_for((count + kSumTileElements - 1) / kSumTileElements, [=](int64_t tile) {
    FlushDenormals flush;
    int64_t begin = tile * kSumTileElements, end = std::min(count, begin + kSumTileElements);
    if (overwrites) {
      for (int64_t i = begin; i < end; ++i) sum[i] = to_float(source[i]);
    } else {
      for (int64_t i = begin; i < end; ++i) sum[i] += to_float(source[i]);
    }
  });
}

}  // namespace

void add_gradients(const void* gradients, DType dtype, float* sum, int64_t count, bool overwrites,
                   TaskPool& pool) {
  switch (dtype) {
    case DType::kBF16:
      return add_into<BFloat16>(gradients, sum, count, overwrites, pool);
    case DType::kF16:
      return add_into<Float16>(gradients, sum, count, overwrites, pool);
    default:
      return add_into<float>(gradients, sum, count, overwrites, pool);
  }
}

}  // namespace stagecoach
