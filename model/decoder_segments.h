#pragma once

#include <optional>

#include "model/basic_segment.h"
#include "model/head_rotation.h"

namespace stagecoach {

/// out[R, C] = in / root mean square of in, times weight.
class RmsNormSegment final : public BasicSegment {
 public:
  struct Options {
    int in = 0;
    int rstd = 1;  ///< own extra activation, fp32 [R, 1]
    int out = 2;
    ParameterRef weight;  ///< [C]
    int64_t columns = 0;
    float epsilon = 1e-6f;
  };
  RmsNormSegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;
  Status backward_weight(SegmentRun& run) const override;

 private:
  Options options_;
};

/// RMS norm of each query and each key head of packed in[R, (H + 2 Hkv) * D], and rotation of what
/// comes out. Must be the only reader of `in`, whose gradient is overwritten.
class QkNormSegment final : public BasicSegment {
 public:
  struct Options {
    int in = 0;
    int rstd = 1;  ///< own extra activation, fp32 [R, H + Hkv]
    int out = 2;
    ParameterRef q_weight, k_weight;  ///< [D] each
    float epsilon = 1e-6f;
    HeadRotation rotation;  ///< has the numbers of heads too
  };
  QkNormSegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;
  Status backward_weight(SegmentRun& run) const override;

 private:
  Options options_;
};

/// out[R, C] = silu(gate) * up of in[R, 2 C], whose rows are gate, then up, or as `numbers` say;
/// with `count` each row holds so many of these. Must be the only reader of `in`, whose gradient is
/// overwritten.
class GatedSiluSegment final : public BasicSegment {
 public:
  struct Options {
    int in = 0;
    int out = 1;
    int64_t columns = 0;
    int64_t count = 1;
    GatedNumbers numbers = {};
  };
  GatedSiluSegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;

 private:
  Options options_;
};

}  // namespace stagecoach
