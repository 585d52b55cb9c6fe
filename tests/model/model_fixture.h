#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "hal/device.h"
#include "hal/op_tape.h"
#include "model/gpt2.h"
#include "scheduler/network.h"
#include "tests/model/model_reference.h"

namespace stagecoach {

/// One device with a stream, the first of `test_devices`, and helpers that end the test on failure.
class DeviceRig {
 public:
  DeviceRig();
  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }

  /// Device memory filled with NaN, whatever the element type.
  BufferHandle poisoned(ByteCount size);
  BufferHandle zeros(ByteCount size);
  BufferHandle upload(const void* data, ByteCount size);
  /// Poisons a whole buffer again.
  void poison(const BufferView& view);
  std::vector<std::byte> download(const BufferView& view);
  std::vector<float> download_f32(const BufferView& view);

 private:
  BufferHandle filled(ByteCount size, uint32_t pattern);
  std::vector<std::unique_ptr<Device>> devices_;
  Device* device_ = nullptr;
  std::unique_ptr<Stream> stream_;
};

/// FLOP of all calls.
double flop_of(const OpTape& tape);
/// Calls whose label starts with `prefix`.
int count_calls(const OpTape& tape, std::string_view prefix);

/// How to take a micro-batch through a network.
struct PassOptions {
  bool recompute = false;  ///< forward keeps nothing; saved is made again before each backward
  bool split = false;      ///< input parts, then weight parts
  bool training = true;
  LossTerms loss_terms = {};
};

/// What came out, as fp32.
struct PassResult {
  std::vector<float> losses;
  std::vector<std::vector<float>> gradients;  ///< per block, sites added in order
  std::vector<std::vector<float>> reports;    ///< of layers that do
};

/// Takes one micro-batch through every layer forward and backward on the device, poisoning saved
/// memory, workspace and boundaries before each call. `parameters`: fp32 per block.
PassResult run_network(DeviceRig& rig, const Network& network,
                       const std::vector<std::vector<float>>& parameters,
                       const reference::Gpt2Batch& batch, const PassOptions& options);

/// What the last layer yields, as fp32 bytes say; nothing is kept and nothing is dropped.
std::vector<float> run_forward(DeviceRig& rig, const Network& network,
                               const std::vector<std::vector<float>>& parameters,
                               const reference::Gpt2Batch& batch);

/// Random parameters of every block, larger than an initializer's so that all gradients matter.
std::vector<std::vector<float>> random_parameters(const Network& network, uint64_t seed);
/// The same numbers by name, for the reference.
reference::NamedValues named_parameters(const Network& network,
                                        const std::vector<std::vector<float>>& parameters);
/// Random ids and labels, a few of them ignored.
reference::Gpt2Batch random_batch(int64_t sequences, int64_t sequence, int64_t vocabulary,
                                  uint64_t seed);
/// |a - b| / |b| over all elements (Frobenius).
double relative_difference(const std::vector<double>& a, const std::vector<double>& b);

/// vocab 61, width 24, 3 layers, 4 heads: small, and no size a power of two but the head count.
Gpt2Config small_gpt2(double dropout);

/// Everything a layer's passes need for one micro-batch, poisoned, with the LayerRun that names it.
struct LayerBuffers {
  LayerBuffers(DeviceRig& rig, const Network& network, int layer, const MicroBatchShape& shape);
  std::vector<BufferHandle> owned;
  LayerRun run;
  std::vector<BufferView> parameters, gradients;
};

}  // namespace stagecoach
