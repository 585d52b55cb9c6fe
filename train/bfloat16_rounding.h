#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace stagecoach {

/// Rounds `count` fp32 numbers to bf16, nearest, ties to even, as updates do for devices that read
/// another copy than the master (update_kernel.h). NaN is not expected; overflow becomes infinity.
/// The same bits on any SIMD target. Ranges must not overlap. Thread rule: disjoint ranges at once.
void round_to_bfloat16(const float* values, BFloat16* rounded, int64_t count);

}  // namespace stagecoach
