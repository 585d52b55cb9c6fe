#pragma once

#include <memory>
#include <vector>

#include "hal/hal.h"
#include "scheduler/layer_timing.h"
#include "scheduler/network.h"

namespace stagecoach {

/// One layer of a network with all the device memory that its passes over one micro-batch need: to
/// time it alone, or to see what it enqueues. Contents are undefined until fill_randomly.
/// Thread rule: one thread.
class SingleLayer {
 public:
  /// Device, stream and network must outlive it. Errors: resource exhausted, the device's.
  static Result<std::unique_ptr<SingleLayer>> create(Device& device, Stream& stream,
                                                     const Network& network, int layer,
                                                     const MicroBatchShape& shape);

  /// Enqueues one pass by way of `ops`. kBackward reads what kSavingForward or kEarlyStop has left;
  /// weight gradients are added to. Errors: the layer's.
  Status run(LayerPhase phase, Ops& ops);

  /// Fills inputs, parameters and output gradients with numbers as small as trained ones, and
  /// whatever holds whole numbers with 0 to `vocabulary` - 1, so that the power a card takes is
  /// that of training. Waits for the stream. Errors: those of allocating pinned memory.
  Status fill_randomly(int64_t vocabulary, uint64_t seed);

  const Layer& layer() const { return layer_; }

 private:
  SingleLayer(Device& device, Stream& stream, const Layer& layer, const MicroBatchShape& shape);

  Status allocate(const Network& network, bool is_first);
  Result<BufferView> memory(ByteCount size, DType dtype);

  Device& device_;
  const Layer& layer_;
  LayerRun run_;
  std::vector<BufferHandle> buffers_;
  std::vector<DType> dtypes_;  ///< parallel to buffers_
  std::vector<BufferView> parameters_, gradients_;
  BufferView output_;
};

}  // namespace stagecoach
