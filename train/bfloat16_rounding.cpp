#include "train/bfloat16_rounding.h"

#include "train/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "train/bfloat16_rounding.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "train/simd_formats.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::HWY_NAMESPACE {

void encode_bfloat16(const float* values, BFloat16* rounded, int64_t count) {
  encode_floats(values, count, rounded);
}

}  // namespace stagecoach::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stagecoach {

namespace {
HWY_EXPORT(encode_bfloat16);
}  // namespace

void round_to_bfloat16(const float* values, BFloat16* rounded, int64_t count) {
  HWY_DYNAMIC_DISPATCH(encode_bfloat16)(values, rounded, count);
}

}  // namespace stagecoach
#endif
