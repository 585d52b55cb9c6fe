#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "scheduler/layer_profile.h"

namespace stagecoach {

/// What a --layer-times file says.
struct LayerTimes {
  std::vector<LayerProfile> layers;
  std::optional<double> hop_ns;  ///< of a hand-over; boundary bytes then cost nothing more
  double tokens_per_micro_batch = 0;
};

/// Reads {"layers": [{"name", "forward_ms", "backward_ms", "recompute_ms", "parameter_bytes",
/// "activation_bytes", "boundary_bytes"} …], "hop_ms": …, "tokens_per_microbatch": …}. Only the
/// first three of a layer are needed; recompute_ms is forward_ms where absent. Times that are no
/// number, negative or 0, and unknown keys, are refused by file, layer and field.
Result<LayerTimes> read_layer_times(const std::string& path);

}  // namespace stagecoach
