#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/status.h"
#include "scheduler/layer_profile.h"

namespace stagecoach {

/// Measured times and bytes of a model's layers.
struct LayerTimes {
  std::vector<LayerProfile> layers;
  std::optional<double> hop_ns;  ///< of a hand-over; boundary bytes then cost nothing more
  double tokens_per_micro_batch = 0;
};

/// Reads {"layers": [{"name", "forward_ms", "backward_ms", "recompute_ms", "parameter_bytes",
/// "activation_bytes", "boundary_bytes", "repeat"} …], "hop_ms": …, "tokens_per_microbatch": …}.
/// Only the two times of a layer are needed; recompute_ms is forward_ms where absent, `repeat` says
/// how many such layers follow each other. Times that are no number, negative or 0, and unknown
/// keys, are refused by file, layer and field.
Result<LayerTimes> read_layer_times(const std::string& path);

/// The text that read_layer_times reads, as a value: every layer with all its fields.
Json layer_times_to_json(const LayerTimes& times);

/// The same layers for micro-batches of `tokens`: times, activations and hand-overs grow with
/// tokens, parameters do not. Refuses files that do not say how many tokens they are for.
Result<LayerTimes> for_tokens(LayerTimes times, double tokens);

}  // namespace stagecoach
