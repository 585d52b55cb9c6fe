#include "train/layer_times.h"

namespace stagecoach {

Json layer_times_to_json(const MeasuredRun& measured, int64_t tokens_per_micro_batch) {
  constexpr double kNsPerMs = 1e6;
  Json layers = Json::array();
  for (const LayerProfile& layer : measured.layers) {
    Json item = Json::object();
    item["name"] = layer.name;
    item["forward_ms"] = layer.forward_ns / kNsPerMs;
    item["backward_ms"] = layer.backward_ns / kNsPerMs;
    item["recompute_ms"] = layer.recompute_ns / kNsPerMs;
    item["parameter_bytes"] = layer.parameter_bytes;
    item["activation_bytes"] = layer.saved_bytes;
    item["boundary_bytes"] = layer.boundary_bytes;
    layers.push_back(std::move(item));
  }
  Json json = Json::object();
  json["layers"] = std::move(layers);
  json["tokens_per_microbatch"] = tokens_per_micro_batch;
  return json;
}

}  // namespace stagecoach
