#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/status.h"
#include "hal/ops.h"
#include "scheduler/parameter_block.h"
#include "scheduler/row_input.h"

namespace stagecoach {

/// Size of a micro-batch: whole sequences of equal length.
struct MicroBatchShape {
  int64_t sequences = 0;
  int64_t sequence = 0;  ///< tokens of one sequence
  int64_t rows() const { return sequences * sequence; }
};

/// A tensor that crosses from one layer to the next: [rows, columns].
struct BoundaryInfo {
  DType dtype = DType::kF32;
  int64_t columns = 0;
  ByteCount size_bytes(const MicroBatchShape& shape) const {
    return shape.rows() * columns * dtype_size_bytes(dtype);
  }
};

/// One use of a block by a layer.
struct BlockUse {
  int block = 0;  ///< index into Network::blocks
  int site = 0;   ///< which of the block's uses this is, in layer order
};

/// Device bytes a layer needs besides its boundaries and parameters.
struct LayerMemory {
  ByteCount saved_bytes = 0;               ///< kept from forward to backward of one micro-batch
  ByteCount forward_workspace_bytes = 0;   ///< forward that keeps nothing
  ByteCount backward_workspace_bytes = 0;  ///< saving forward and backward (the larger)
  /// As backward_workspace_bytes, when backward runs as kInput and later kWeight: gradients wait.
  ByteCount split_workspace_bytes = 0;
};

/// Arithmetic of a layer for one micro-batch, FLOP.
struct LayerFlop {
  double forward = 0;
  double recompute = 0;  ///< saving forward with early stop
  double backward_input = 0;
  double backward_weight = 0;
};

/// Which half of the backward pass to run; both by default.
enum class BackwardPart : uint8_t { kBoth, kInput, kWeight };

/// What a layer works on when it enqueues one micro-batch. All views are device memory of
/// `stream`'s device. Unused ones are none.
struct LayerRun {
  Stream* stream = nullptr;
  Ops* ops = nullptr;
  MicroBatchShape shape;
  BufferView input;        ///< boundary before the layer
  BufferView output;       ///< boundary after it; none when a recompute does not need it
  BufferView output_grad;  ///< gradient of the boundary after; none for the loss layer
  BufferView input_grad;   ///< gradient of the boundary before; none for the first layer
  BufferView saved;
  BufferView workspace;
  PerRowInput<BufferView> rows;            ///< of those that the layer needs
  BufferView report;                       ///< see Layer::report_bytes; none: not wanted
  std::span<const BufferView> parameters;  ///< per block use, compute dtype
  std::span<const BufferView> gradients;   ///< per block use, fp32, added to; frozen: none
  RandomKey key;         ///< seed, iteration, layer and micro-batch; the layer fills in the site
  float loss_scale = 1;  ///< factor of the loss gradient: 1 / target tokens of the step
  LossTerms loss_terms;  ///< none in evaluation
  bool training = true;  ///< false: no dropout (evaluation and generation)
};

/// Smallest unit the runtime moves: parameters with a forward and a backward. Enqueues only; never
/// waits. Immutable after construction, so one instance serves all devices.
/// Thread rule: any thread.
class Layer {
 public:
  virtual ~Layer() = default;

  virtual const std::string& name() const = 0;
  virtual std::span<const BlockUse> uses() const = 0;
  virtual BoundaryInfo input() const = 0;
  /// The loss layer's output is one fp32 loss a row (columns = 1).
  virtual BoundaryInfo output() const = 0;
  /// Whether it reads this beside its input; the same in all passes.
  virtual bool needs(RowInput input) const = 0;
  /// Bytes of what a training forward fills LayerRun::report with, for the host to read: one fp32 a
  /// row of a loss of the layer's own. 0: nothing.
  virtual ByteCount report_bytes(const MicroBatchShape& shape) const { return 0; }
  virtual LayerMemory memory(const MicroBatchShape& shape) const = 0;
  virtual LayerFlop flop(const MicroBatchShape& shape) const = 0;

  /// Output from input, keeping nothing else.
  virtual Status forward(const LayerRun& run) const = 0;
  /// Fills `saved` from input, and `output` unless it is none; then the last product is skipped.
  virtual Status forward_saving(const LayerRun& run) const = 0;
  /// Gradients from `saved`, input and output_grad. kInput then kWeight on the same views equals
  /// kBoth bit for bit; `workspace` must be left alone in between.
  virtual Status backward(const LayerRun& run, BackwardPart part) const = 0;
};

}  // namespace stagecoach
