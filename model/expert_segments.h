#pragma once

#include "model/basic_segment.h"

namespace stagecoach {

/// Which experts rows go to, as activations of a layer; `ops.h` has the words.
struct RowChoice {
  int weights = -1;  ///< fp32 [R, K]
  int choices = -1;  ///< int32 [R, K]
  int order = -1;    ///< int32 [R, K]
  int places = -1;   ///< int32 [R, K]
  int offsets = -1;  ///< int32 [1, E + 1], however many rows there are
};

/// The sizes of a product of rows with the matrices of the experts that they go to.
struct ExpertSizes {
  int64_t experts = 0;
  int64_t count = 0;  ///< experts of a row
  int64_t in_columns = 0;
  int64_t out_columns = 0;
};

/// What the segments below declare, without their own scratch and output, and what they cost;
/// planning declares the same. `combines`: the sum of the experts' results, else one result each.
SegmentIo route_io(int logits, const RowChoice& choice, bool balances = false);
SegmentFlop route_flop(int64_t rows, int64_t experts, int64_t count, bool balances = false);
SegmentIo expert_io(int in, const RowChoice& choice, bool combines, bool has_bias);
SegmentFlop expert_flop(const ExpertSizes& sizes, int64_t rows, bool combines, bool has_bias,
                        bool is_trained);

/// The K experts with the largest logits[R, E], their weights, and rows grouped by expert. Must be
/// the only reader of the logits, whose gradient is overwritten.
class RouteSegment final : public BasicSegment {
 public:
  struct Options {
    int logits = 0;
    RowChoice choice;  ///< own extra activations, and what the others read
    int64_t experts = 0;
    int64_t count = 0;
    bool over_chosen = false;  ///< weights are a softmax of the chosen logits alone
    /// Times the load-balancing loss, which the layer reports (see balance_forward), joins the loss
    /// of each target; 0: there is none. Above 0 the layer needs labels.
    float balance = 0;
  };
  RouteSegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;

 private:
  Options options_;
};

/// Each row times the matrices of its experts, grouped by expert: out[R, K * O], which is
/// [R * K, O] in that order.
class ExpertLinearSegment final : public BasicSegment {
 public:
  struct Options {
    int in = 0;
    RowChoice choice;
    int rows = 1;  ///< own extra activation [R, K * C]: rows by expert, and their gradient
    int out = 2;
    ParameterRef weight;  ///< [E, C, O], or [E, O, C]
    ParameterRef bias;    ///< [E, O] or none
    ExpertSizes sizes;
    bool is_transposed = true;  ///< [E, O, C], as Qwen3-MoE has it
  };
  ExpertLinearSegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;
  Status backward_weight(SegmentRun& run) const override;

 private:
  Options options_;
};

/// out[R, O] = residual + the weighted sum of what a row's experts make of in[R, K * C], which lies
/// as ExpertLinearSegment left it. Must be the only reader of `in` and of the weights, whose
/// gradients are overwritten.
class ExpertSumSegment final : public BasicSegment {
 public:
  struct Options {
    int in = 0;
    int residual = -1;  ///< added; -1: none
    RowChoice choice;
    int products = 1;  ///< own extra activation [R, K * O]: results by expert, and their gradient
    int out = 2;
    ParameterRef weight;  ///< [E, C, O], or [E, O, C]
    ParameterRef bias;    ///< [E, O] or none
    ExpertSizes sizes;
    bool is_transposed = true;
  };
  ExpertSumSegment(std::string name, Options options);

  SegmentFlop flop(const MicroBatchShape& shape) const override;
  Status forward(SegmentRun& run) const override;
  Status backward_input(SegmentRun& run) const override;
  Status backward_weight(SegmentRun& run) const override;

 private:
  Options options_;
};

}  // namespace stagecoach
