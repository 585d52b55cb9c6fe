#pragma once

#include "model/basic_segment.h"

namespace stagecoach {

/// out[R, C] = table[ids] + positions[row % sequence]. ids int32 [R, 1] have no gradient: an
/// activation, or the rows' positions in their documents.
class EmbeddingSegment final : public BasicSegment {
 public:
  struct Options {
    static constexpr int kRowPositions = -1;
    int ids = 0;  ///< an activation or kRowPositions
    int out = 1;
    ParameterRef table;      ///< [V, C]
    ParameterRef positions;  ///< [>= sequence, C] or none
    int64_t columns = 0;
  };
  EmbeddingSegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;
  Status backward_weight(SegmentRun& run) const override;

 private:
  TensorView ids(SegmentRun& run) const;

  Options options_;
};

/// loss[R, 1] (fp32) = cross-entropy of softmax(hidden weight^T) against labels int32 [R, 1]; -1 is
/// ignored. Logits never exist as a whole. Gradients start here, times the run's loss scale. The
/// run's loss terms are added.
class LinearCrossEntropySegment final : public BasicSegment {
 public:
  struct Options {
    int hidden = 0;
    int lse = 1;  ///< own extra activation, fp32 [R, 1]
    int loss = 2;
    ParameterRef weight;  ///< [V, C], possibly shared with an embedding
    int64_t columns = 0;
    int64_t vocabulary = 0;
  };
  LinearCrossEntropySegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;
  Status backward_weight(SegmentRun& run) const override;

 private:
  Options options_;
};

/// logits[R, V] (fp32 or storage) = hidden weight^T, for generation. Its backward pass is
/// unimplemented.
class LinearLogitsSegment final : public BasicSegment {
 public:
  struct Options {
    int hidden = 0;
    int logits = 1;
    ParameterRef weight;  ///< [V, C]
    int64_t columns = 0;
    int64_t vocabulary = 0;
  };
  LinearLogitsSegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;

 private:
  Options options_;
};

}  // namespace stagecoach
