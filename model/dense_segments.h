#pragma once

#include <optional>

#include "model/basic_segment.h"
#include "model/head_rotation.h"
#include "model/linear_adapter.h"

namespace stagecoach {

/// out[R, C] = layer norm of in, times weight, plus bias.
class LayerNormSegment final : public BasicSegment {
 public:
  struct Options {
    int in = 0;
    int mean = 1;  ///< own extra activation, fp32 [R, 1]
    int rstd = 2;  ///< own extra activation, fp32 [R, 1]
    int out = 3;
    ParameterRef weight;  ///< [C]
    ParameterRef bias;    ///< [C] or none
    int64_t columns = 0;
    float epsilon = 1e-5f;
  };
  LayerNormSegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;
  Status backward_weight(SegmentRun& run) const override;

 private:
  Options options_;
};

/// out[R, N] = in[R, K] weight + bias, or residual + dropout(in weight + bias). The weight is [K,
/// N] as GPT-2 stores it, or transposed; it may be several tensors that lie one behind the other,
/// as those of queries, keys and values, and so may the bias. Without dropout the product is added
/// to the residual inside the matmul, in fp32.
class LinearSegment final : public BasicSegment {
 public:
  struct Options {
    int in = 0;
    int out = 1;
    int residual = -1;    ///< activation to add to, or -1
    int product = -1;     ///< own extra activation [R, N] that dropout needs; -1 without dropout
    ParameterRef weight;  ///< the first, of several
    ParameterRef bias;    ///< [N] or none
    int64_t in_columns = 0;
    int64_t out_columns = 0;
    bool is_transposed = false;  ///< the weight is [N, K]
    float drop_probability = 0;
    uint32_t site = 0;                     ///< random site inside the layer
    std::optional<HeadRotation> rotation;  ///< of `out`, which is packed heads then
    std::optional<LinearAdapter> adapter;  ///< adds to the product
  };
  LinearSegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;
  Status backward_weight(SegmentRun& run) const override;

 private:
  bool has_dropout() const { return options_.drop_probability > 0; }
  bool has_residual() const { return options_.residual >= 0; }
  /// The probability of this run: zero in evaluation.
  float drop_probability(const SegmentRun& run) const;
  /// Where the gradient of in weight + bias lies: scratch with dropout, else the output's gradient.
  int product_gradient() const { return has_dropout() ? options_.product : options_.out; }
  Status multiply(SegmentRun& run, const TensorView& out, bool accumulate) const;
  Status add_weight_gradients(SegmentRun& run, const TensorView& product_grad) const;
  Shape weight_shape() const;

  Options options_;
};

/// out[R, C] = GELU of in (the tanh approximation of GPT-2).
class GeluSegment final : public BasicSegment {
 public:
  struct Options {
    int in = 0;
    int out = 1;
    int64_t columns = 0;
  };
  GeluSegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;

 private:
  Options options_;
};

}  // namespace stagecoach
