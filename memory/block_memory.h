#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "hal/buffer.h"
#include "memory/moments.h"

namespace stagecoach {

/// Memory of a trained block, for its update. Whole block each; does not own.
struct BlockMemory {
  const float* parameters = nullptr;  ///< fp32 and fp16 training: the fp32 master
  float* new_parameters = nullptr;    ///< where the next version goes; may be the same place
  const BFloat16* high = nullptr;     ///< bf16 training: the master's halves (split_master.h)
  BFloat16* new_high = nullptr;       ///< where the next version goes; may be the same place
  int16_t* remainder = nullptr;       ///< updated in place: nothing but updates reads it
  Float16* new_rounded = nullptr;     ///< fp16 training: the next version of what devices read
  MomentFormat moment_format = MomentFormat::kFloat32;
  void* first_moment = nullptr;    ///< in that format; null where none is kept
  void* second_moment = nullptr;   ///< likewise
  float* first_scales = nullptr;   ///< of 8-bit moments: moment_scale_index of `parts`
  float* second_scales = nullptr;  ///< likewise
  std::span<const int64_t> parts;  ///< of the layout
  DType gradient_dtype = DType::kF32;
  /// What the gradient is the sum of, in this order: the slots of all sites, or the fp32 sum.
  std::vector<const void*> gradients;
};

/// The same memory of a trained block for copies to and from a device, whole block each.
struct BlockBuffers {
  BufferView compute_copy;  ///< what devices read; in bf16 the master's high halves, in fp32 it
  BufferView master;        ///< fp32 and fp16 training
  BufferView new_copy, new_master;  ///< where the next version of these goes; may be the same place
  BufferView remainder;             ///< bf16 training
  BufferView first_moment, second_moment;
  std::vector<BufferView> gradients;  ///< as BlockMemory has them
};

}  // namespace stagecoach
