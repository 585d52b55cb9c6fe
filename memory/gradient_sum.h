#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/task_pool.h"

namespace stagecoach {

/// sum[i] += gradients[i], or = with `overwrites`, for `count` elements of `dtype` (fp32, bf16 or
/// fp16), in fp32. Denormals count as zero. The same bits for any number of threads. Ranges must
/// not overlap. Thread rule: disjoint ranges at once.
void add_gradients(const void* gradients, DType dtype, float* sum, int64_t count, bool overwrites,
                   TaskPool& pool);

}  // namespace stagecoach
