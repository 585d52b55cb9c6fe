#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/layer.h"

namespace stagecoach {

/// An activation inside a layer: [rows, columns], its rows those of the micro-batch as a rule.
/// Index 0 is the layer's input, the last its output.
struct ActivationInfo {
  std::string name;
  DType dtype = DType::kF32;
  int64_t columns = 0;
  int64_t fixed_rows = 0;  ///< above 0: it has so many rows, whatever the micro-batch

  Shape shape(int64_t rows) const { return {fixed_rows > 0 ? fixed_rows : rows, columns}; }
  ByteCount size_bytes(int64_t rows) const {
    return shape(rows).element_count() * dtype_size_bytes(dtype);
  }
};

/// What a segment touches, as indices into its layer's activations. The engine derives from this
/// what to keep, what to recompute, when to stop, and where gradients add up.
struct SegmentIo {
  std::vector<int> reads;
  std::vector<int> writes;
  /// Activations `backward_input` and `backward_weight` read (of reads, writes and own extra ones).
  std::vector<int> saved_for_input;
  std::vector<int> saved_for_weight;
  /// Own writes that no segment reads, whose gradient `backward_input` fills for `backward_weight`.
  std::vector<int> scratch_gradients;
  /// Without a weight part: gradients of its writes need not outlive `backward_input`.
  bool weightless = false;
  /// Block uses of the parameters whose gradients the weight part fills. Where all of them are
  /// frozen there is no weight part; none: not known, so there is one.
  std::vector<int> weight_uses = {};
  /// What it reads beside activations, in any pass.
  std::vector<RowInput> row_inputs = {};
};

/// What a segment works on: the engine resolves indices to tensors.
class SegmentRun {
 public:
  virtual ~SegmentRun() = default;
  virtual Stream& stream() = 0;
  virtual Ops& ops() = 0;
  virtual const MicroBatchShape& shape() const = 0;
  /// Activation `index` [rows, columns].
  virtual TensorView activation(int index) = 0;
  /// Gradient of an activation: of a written one to read, of a read one to write. None for the
  /// loss, which starts from `loss_scale`.
  virtual TensorView gradient(int index) = 0;
  /// Whether the gradient of a read activation already holds a part and must be added to.
  virtual bool gradient_accumulates(int index) = 0;
  /// Whether anybody wants the gradient of a read activation (token ids have none).
  virtual bool wants_gradient(int index) = 0;
  /// Parameter `parameter` of the layer's block use `use`, compute dtype / fp32 gradient. A block
  /// without parameters is a constant: a vector of all its elements. The gradient of a frozen one
  /// is none.
  virtual TensorView parameter(int use, int parameter) = 0;
  virtual TensorView parameter_gradient(int use, int parameter) = 0;
  /// Row input [rows, columns] of those that the segment declares.
  virtual TensorView row_input(RowInput input) = 0;
  /// Where a training forward leaves a loss of the layer's own, fp32 [rows]; none: nobody wants it.
  virtual TensorView report() = 0;
  virtual float loss_scale() const = 0;
  /// What a cross-entropy has besides, none in evaluation.
  virtual LossTerms loss_terms() const = 0;
  /// False in evaluation: nothing is dropped.
  virtual bool training() const = 0;
  /// Key of random site `site` of this layer; equal in forward, recompute and backward.
  virtual RandomKey key(uint32_t site) const = 0;
};

/// Arithmetic of one segment, FLOP for one micro-batch.
struct SegmentFlop {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
};

/// A piece of a layer between two cut points. Immutable; enqueues only.
/// Thread rule: any thread.
class Segment {
 public:
  virtual ~Segment() = default;
  virtual std::string_view name() const = 0;
  virtual const SegmentIo& io() const = 0;
  virtual SegmentFlop flop(const MicroBatchShape& shape) const = 0;
  virtual Status forward(SegmentRun& run) const = 0;
  /// Gradients of what it reads. Segments without parameters keep the default weight part.
  virtual Status backward_input(SegmentRun& run) const = 0;
  virtual Status backward_weight(SegmentRun& run) const { return Status::ok(); }
};

/// Everything that makes a layer from segments.
struct SegmentChainSpec {
  std::string name;
  std::vector<ActivationInfo> activations;  ///< first = input, last = output
  std::vector<std::unique_ptr<Segment>> segments;
  std::vector<BlockUse> uses;
  DType dtype = DType::kF32;              ///< of the blocks' compute copies
  bool reports = false;                   ///< see Layer::report_bytes
  BoundaryInfo label = {DType::kI32, 1};  ///< of labels, where a segment reads them
  bool input_has_gradient = true;         ///< false for token ids
};

/// Makes a layer from segments: the one engine that derives plain forward, saving forward,
/// recompute with early stop, the split of backward into input and weight parts, and memory needs.
/// `blocks` is the network's list, which must hold every block the layer uses. User layers go
/// through here too. Errors: invalid argument when a segment reads what nothing wrote, an
/// activation is written twice or never used, the output is read, or indices are out of range.
Result<std::unique_ptr<Layer>> make_segment_layer(SegmentChainSpec spec,
                                                  const std::vector<ParameterBlock>& blocks);

}  // namespace stagecoach
