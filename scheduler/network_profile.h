#pragma once

#include <vector>

#include "scheduler/layer_profile.h"
#include "scheduler/network.h"

namespace stagecoach {

/// Bytes that an update touches for each parameter in bf16: gradient read, weight, remainder and
/// two fp32 moments read and written. update_cost.h has those of other optimizers and dtypes.
inline constexpr double kUpdateBytesPerParameter = 26;

/// What layer times are computed from before anything has been measured.
struct ProfileRates {
  double flop_per_s = 0;        ///< of a device of speed 1
  double host_bytes_per_s = 0;  ///< what the host's update touches
  double update_bytes_per_parameter = kUpdateBytesPerParameter;
};

/// No layer takes less, however little it computes.
inline constexpr double kLeastLayerNs = 1000;

/// Layers of a network by their own FLOP and bytes. Sizes are rounded up as the runtime's memory
/// does, so that what fits here fits there; a block of several sites is updated by its first layer.
/// Frozen blocks come before trained ones in a layer. Pure.
std::vector<LayerProfile> profile_network(const Network& network, const MicroBatchShape& shape,
                                          const ProfileRates& rates);

}  // namespace stagecoach
