#pragma once

#include <vector>

#include "scheduler/layer_profile.h"
#include "scheduler/network.h"

namespace stagecoach {

/// What layer times are computed from before anything has been measured.
struct ProfileRates {
  double flop_per_s = 0;        ///< of a device of speed 1
  double host_bytes_per_s = 0;  ///< what the host's update touches
};

/// Bytes that an update touches for each parameter: gradient read, weight, remainder and two fp32
/// moments read and written.
inline constexpr double kUpdateBytesPerParameter = 26;
/// No layer takes less, however little it computes.
inline constexpr double kLeastLayerNs = 1000;

/// Layers of a network by their own FLOP and bytes. Sizes are rounded up as the runtime's memory
/// does, so that what fits here fits there; a block of several sites is updated by its first layer.
/// Frozen blocks come before trained ones in a layer. Pure.
std::vector<LayerProfile> profile_network(const Network& network, const MicroBatchShape& shape,
                                          const ProfileRates& rates);

}  // namespace stagecoach
