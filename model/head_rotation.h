#pragma once

#include <vector>

#include "model/basic_segment.h"
#include "model/rotary_scaling.h"

namespace stagecoach {

/// Turns the query and key heads of packed qkv[R, (H + 2 Hkv) * D] in place by their positions: the
/// last step of the segment that writes qkv.
///
/// Where cosines and sines come from: the host computes them once, from exact angles, into a frozen
/// block without named parameters, which travels like any block but is neither counted, saved nor
/// loaded. On devices they would have to be computed anew in every layer and pass, with 64-bit
/// arithmetic, or lose accuracy as positions grow. Compute copies of blocks have the network's
/// dtype: in 16 bits an fp32 number is the sum of three (exactly in bf16, to 2^-25 in fp16).
class HeadRotation {
 public:
  ParameterRef table;     ///< the constant block
  int64_t positions = 0;  ///< of the table; sequences may be shorter
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  /// Own extra activation of the segment, fp32 [R, D], where the numbers are put together again;
  /// -1 in fp32, which reads them from the block.
  int sum = -1;

  /// Elements of the constant block.
  static int64_t table_elements(int64_t head_dim, int64_t positions, DType dtype);
  /// What the block holds: rotary_table in parts that add up to it.
  static std::vector<float> table_values(const RotaryScaling& scaling, int64_t head_dim,
                                         int64_t positions, DType dtype);

  /// Adds what turning needs to a segment's declarations.
  void declare(SegmentIo& io) const;
  double flop(int64_t rows) const;
  /// Of what the segment has written, in its forward pass.
  Status turn(SegmentRun& run, const TensorView& qkv, const Label& label) const;
  /// Of the gradient of that, at the start of its backward_input.
  Status turn_back(SegmentRun& run, const TensorView& qkv_grad, const Label& label) const;

 private:
  Status apply(SegmentRun& run, const TensorView& qkv, const TensorView& sum_view, bool inverse,
               const Label& label) const;
};

}  // namespace stagecoach
