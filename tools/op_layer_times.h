#pragma once

#include <string>
#include <vector>

#include "core/status.h"
#include "hal/op_rates.h"
#include "scheduler/layer_profile.h"
#include "scheduler/network.h"

namespace stagecoach {

/// What a device takes for operations: timed ones, and for kinds that were not its rate.
struct TimedDevice {
  const OpRates* ops = nullptr;  ///< not empty
  double flop_per_s = 0;
};

/// Layer times by operations.
struct OpLayerTimes {
  std::vector<LayerProfile> layers;  ///< as they came, with times replaced
  double total_ns = 0;               ///< of all passes of all layers
  std::vector<std::string> guessed;  ///< names of operations that were not timed, each once
};

/// Times of `layers`, which profile_network made of `network` and `shape`, by what their passes
/// enqueue: each layer runs on a device that only writes down. Errors: unimplemented for networks
/// that do not compute.
Result<OpLayerTimes> time_layers_by_ops(const Network& network, const MicroBatchShape& shape,
                                        const TimedDevice& device,
                                        const std::vector<LayerProfile>& layers);

}  // namespace stagecoach
