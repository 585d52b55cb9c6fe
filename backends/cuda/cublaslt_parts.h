#pragma once

#include <cstdint>

#include "backends/gpu/gpu_library_work.h"

namespace stagecoach {

/// An axis of a product.
enum class ProductAxis : uint8_t { kNone, kM, kN, kK };

/// The axis along which cuBLASLt is given a product in two parts, or none. Its fast algorithms need
/// extents that are multiples of 8 along every axis that is contiguous in some matrix: a GPT-2
/// vocabulary of 50257 is six times slower than one of 50256. Where only the extent is odd and the
/// rows are aligned, all but the last few of it are a product of their own. Products of fewer than
/// `least_terms` multiply-adds are left whole: another launch costs more. Pure.
ProductAxis cut_axis(const GpuProductShape& shape, int64_t least_terms);

/// Part 0 or 1 of a product cut along `axis`, in the order in which they run: of K the last terms
/// come first, so that what a 16-bit result is rounded to in between is small. Pure.
GpuProductRound product_part(const GpuProductRound& whole, ProductAxis axis, int part);

}  // namespace stagecoach
