#include "tools/op_layer_times.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "backends/sim/sim_backend.h"
#include "hal/op_tape.h"
#include "scheduler/network_profile.h"
#include "scheduler/single_layer.h"
#include "tools/rated_devices.h"
#include "train/metrics.h"

namespace stagecoach {

namespace {

/// Prices what layers enqueue.
class LayerPricing {
 public:
  explicit LayerPricing(const TimedDevice& device) : device_(device) {}

  /// Of everything on `tape`.
  double time_ns(const OpTape& tape) {
    double sum = 0;
    for (const OpCall& call : tape.calls()) sum += op_time_ns(op_shape(call));
    return std::max(sum, kLeastLayerNs);
  }
  std::vector<std::string> take_guessed() { return std::move(guessed_); }

 private:
  double op_time_ns(const OpShape& shape) {
    const OpRates& ops = *device_.ops;
    if (ops.knows(shape.kind, shape.dtype)) return ops.time_ns(shape);
    std::string name(op_kind_name(shape.kind));
    if (std::find(guessed_.begin(), guessed_.end(), name) == guessed_.end()) {
      guessed_.push_back(std::move(name));
    }
    double rate = is_arithmetic(shape.kind) ? device_.flop_per_s / 1e9 : median_bytes_per_ns();
    return std::max(OpRates::kLeastOpNs, rate > 0 ? shape.work / rate : 0);
  }

  /// Of the timed operations that are bound by bytes; 0 without any.
  double median_bytes_per_ns() const {
    std::vector<double> rates;
    for (const TimedOp& op : device_.ops->ops()) {
      if (!is_arithmetic(op.shape.kind)) rates.push_back(op.shape.work / op.time_ns);
    }
    return rates.empty() ? 0 : median(std::move(rates));
  }

  const TimedDevice device_;
  std::vector<std::string> guessed_;
};

/// A simulated device of memory without end: operands need places, not bytes.
std::unique_ptr<Device> open_tape_device() {
  SimMachineProfile machine;
  machine.cards.push_back({"tape", "tape", kUnlimitedBytes, 1e15, 1e15, 1e15, 1e15, "none"});
  return std::move(open_sim_devices(std::make_shared<SimMachine>(std::move(machine))).front());
}

}  // namespace

Result<OpLayerTimes> time_layers_by_ops(const Network& network, const MicroBatchShape& shape,
                                        const TimedDevice& device,
                                        const std::vector<LayerProfile>& layers) {
  std::unique_ptr<Device> tape_device = open_tape_device();
  STAGECOACH_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, tape_device->create_stream({"tape"}));
  OpLayerTimes times;
  times.layers = layers;
  LayerPricing pricing(device);
  for (size_t index = 0; index < layers.size(); ++index) {
    STAGECOACH_ASSIGN_OR_RETURN(
        std::unique_ptr<SingleLayer> layer,
        SingleLayer::create(*tape_device, *stream, network, static_cast<int>(index), shape));
    auto price = [&](LayerPhase phase) -> Result<double> {
      OpTape tape;
      STAGECOACH_RETURN_IF_ERROR(layer->run(phase, tape));
      return pricing.time_ns(tape);
    };
    LayerProfile& profile = times.layers[index];
    STAGECOACH_ASSIGN_OR_RETURN(profile.forward_ns, price(LayerPhase::kForward));
    STAGECOACH_ASSIGN_OR_RETURN(profile.recompute_ns, price(LayerPhase::kSavingForward));
    STAGECOACH_ASSIGN_OR_RETURN(double stopped_ns, price(LayerPhase::kEarlyStop));
    profile.early_stop_ns = std::max(0.0, profile.recompute_ns - stopped_ns);
    STAGECOACH_ASSIGN_OR_RETURN(profile.backward_ns, price(LayerPhase::kBackward));
    times.total_ns += profile.forward_ns + profile.recompute_ns + profile.backward_ns;
  }
  times.guessed = pricing.take_guessed();
  return times;
}

}  // namespace stagecoach
