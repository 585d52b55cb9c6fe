#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/expert_segments.h"
#include "model/segment.h"

namespace stagecoach {

/// Query and key heads that a segment turns by their positions as its last step.
struct ShapeRotation {
  int64_t heads = 0;  ///< 0: nothing is turned
  int64_t kv_heads = 0;
  int64_t head_dim = 0;

  double flop(int64_t rows) const;
};

/// A matrix product of a layer, as planning sees it.
struct ShapeLinear {
  std::string_view name;
  int in = 0;             ///< activation that is multiplied
  int residual = -1;      ///< activation that is added
  RowChoice choice;       ///< which experts a row goes to; experts only
  bool combines = false;  ///< the experts' results are one row again; experts' last product only
  int64_t in_columns = 0;
  /// Of the matrices side by side: query, key, value. One where the model's file has one.
  std::vector<int64_t> out_columns;
  int64_t experts = 0;  ///< 0: one matrix for all rows
  int64_t choices = 1;  ///< rows that each row becomes: experts a token goes to
  bool has_bias = false;
  bool has_adapters = true;  ///< where a chain has any
  /// Heads of which columns are turned by their positions after the product; 0: none.
  ShapeRotation rotation = {};

  int64_t columns() const;
  bool has_experts() const { return experts > 0; }
  ExpertSizes expert_sizes() const { return {experts, choices, in_columns, columns()}; }
};

/// Declares a layer: its activations, what its segments do with them and its parameters. Segments
/// made from it take part in planning and refuse to run.
class ShapeChain {
 public:
  /// `rank` 0: everything is trained; else only adapters of that rank.
  ShapeChain(std::string name, DType dtype, int64_t rank);

  int activation(std::string_view name, DType dtype, int64_t columns, int64_t fixed_rows = 0);
  DType dtype() const { return dtype_; }

  /// Adds a segment with parameters: its backward has a weight part unless the base is frozen.
  void segment(std::string_view name, SegmentIo io,
               std::function<SegmentFlop(const MicroBatchShape&)> flop);
  /// Adds a product and its parameters; returns its output, [rows, choices * columns]. Last
  /// products of experts come back as [rows, columns].
  int linear(const ShapeLinear& linear);
  /// Adds to a segment's declaration what turning needs: in 16 bits, room for cosines and sines.
  void declare_rotation(const ShapeRotation& rotation, SegmentIo& io);
  /// Adds parameters that have no adapters to the base.
  void vector(std::string_view name, int64_t columns, int64_t count = 1);

  ParameterBlock base, adapters;  ///< adapters are empty without LoRA
  SegmentChainSpec spec;          ///< without uses

 private:
  SegmentIo linear_io(const ShapeLinear& linear);
  void add_parameters(const ShapeLinear& linear);
  bool is_frozen() const { return rank_ > 0; }
  int64_t rank_of(const ShapeLinear& linear) const { return linear.has_adapters ? rank_ : 0; }

  DType dtype_;
  int64_t rank_;
};

}  // namespace stagecoach
