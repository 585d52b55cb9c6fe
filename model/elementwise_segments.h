#pragma once

#include "model/basic_segment.h"

namespace stagecoach {

/// out[R, C] = in with elements dropped at random and the rest scaled up; in itself in evaluation.
class DropoutSegment final : public BasicSegment {
 public:
  struct Options {
    int in = 0;
    int out = 1;
    int64_t columns = 0;
    float drop_probability = 0;
    uint32_t site = 0;  ///< random site inside the layer
  };
  DropoutSegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;

 private:
  float drop_probability(const SegmentRun& run) const {
    return run.training() ? options_.drop_probability : 0.0f;
  }

  Options options_;
};

/// out[R, C] = a + b, two different activations.
class AddSegment final : public BasicSegment {
 public:
  struct Options {
    int a = 0;
    int b = 1;
    int out = 2;
    int64_t columns = 0;
  };
  AddSegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;

 private:
  Options options_;
};

/// loss[R, 1] (fp32) = mean over columns of (prediction - label)^2; labels fp32 [R, C]. Gradients
/// start here, times the run's loss scale.
class SquaredErrorSegment final : public BasicSegment {
 public:
  struct Options {
    int prediction = 0;
    int loss = 1;
    int64_t columns = 0;
  };
  SquaredErrorSegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;

 private:
  Options options_;
};

}  // namespace stagecoach
