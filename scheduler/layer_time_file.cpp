#include "scheduler/layer_time_file.h"

#include <fmt/format.h>

#include "core/file.h"
#include "core/json.h"
#include "scheduler/json_fields.h"

namespace stagecoach {

namespace {

constexpr double kNsPerMs = 1e6;
constexpr double kMostMs = 1e9;

constexpr double kLeastMs = 1e-6;
constexpr int kMostLayers = 1000;

/// Adds the layer, as often as it repeats.
Status read_layer(const Json& json, const std::string& where, std::vector<LayerProfile>& layers) {
  JsonFields fields(json, where,
                    {"name", "forward_ms", "backward_ms", "recompute_ms", "parameter_bytes",
                     "activation_bytes", "boundary_bytes", "repeat"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  LayerProfile layer;
  STAGECOACH_ASSIGN_OR_RETURN(layer.name, fields.text("name", where.substr(where.rfind("layers"))));
  STAGECOACH_ASSIGN_OR_RETURN(double forward, fields.number("forward_ms", kLeastMs, kMostMs));
  STAGECOACH_ASSIGN_OR_RETURN(double backward, fields.number("backward_ms", kLeastMs, kMostMs));
  STAGECOACH_ASSIGN_OR_RETURN(double recompute, fields.number("recompute_ms", 0, kMostMs, forward));
  STAGECOACH_ASSIGN_OR_RETURN(double parameters,
                              fields.number("parameter_bytes", 0, kMostBytes, 0));
  STAGECOACH_ASSIGN_OR_RETURN(double saved, fields.number("activation_bytes", 0, kMostBytes, 0));
  STAGECOACH_ASSIGN_OR_RETURN(double boundary, fields.number("boundary_bytes", 0, kMostBytes, 0));
  layer.forward_ns = forward * kNsPerMs;
  layer.backward_ns = backward * kNsPerMs;
  layer.recompute_ns = recompute * kNsPerMs;
  layer.parameter_bytes = layer.gradient_bytes = static_cast<ByteCount>(parameters);
  // 16-bit parameters and gradients, summed in fp32.
  layer.gradient_sum_bytes = 2 * layer.parameter_bytes;
  layer.saved_bytes = static_cast<ByteCount>(saved);
  layer.boundary_bytes = static_cast<ByteCount>(boundary);
  STAGECOACH_ASSIGN_OR_RETURN(int repeat, fields.count("repeat", 1, kMostLayers, 1));
  layers.insert(layers.end(), repeat, layer);
  return Status::ok();
}

}  // namespace

Result<LayerTimes> read_layer_times(const std::string& path) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
  Result<Json> json = Json::parse(text);
  if (!json.is_ok()) return json.status().with_context(path);
  JsonFields fields(*json, path, {"layers", "hop_ms", "tokens_per_microbatch"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  const Json* layers = json->find("layers");
  if (layers == nullptr || !layers->is_array() || layers->items().empty()) {
    return invalid_argument(fmt::format("{}: 'layers' must be a list of at least one layer", path));
  }
  LayerTimes times;
  for (size_t index = 0; index < layers->items().size(); ++index) {
    std::string where = fmt::format("{}: layers[{}]", path, index);
    STAGECOACH_RETURN_IF_ERROR(read_layer(layers->items()[index], where, times.layers));
  }
  if (json->find("hop_ms") != nullptr) {
    STAGECOACH_ASSIGN_OR_RETURN(double hop, fields.number("hop_ms", 0, kMostMs));
    times.hop_ns = hop * kNsPerMs;
  }
  STAGECOACH_ASSIGN_OR_RETURN(times.tokens_per_micro_batch,
                              fields.number("tokens_per_microbatch", 0, kMostBytes, 0));
  return times;
}

Result<LayerTimes> for_tokens(LayerTimes times, double tokens) {
  if (times.tokens_per_micro_batch <= 0) {
    return invalid_argument(
        "the layer times are for no known number of tokens; add tokens_per_microbatch to the file");
  }
  double factor = tokens / times.tokens_per_micro_batch;
  auto scale = [factor](ByteCount& bytes) {
    bytes = static_cast<ByteCount>(static_cast<double>(bytes) * factor);
  };
  for (LayerProfile& layer : times.layers) {
    layer.forward_ns *= factor;
    layer.backward_ns *= factor;
    layer.recompute_ns *= factor;
    scale(layer.boundary_bytes);
    scale(layer.saved_bytes);
  }
  if (times.hop_ns) *times.hop_ns *= factor;
  times.tokens_per_micro_batch = tokens;
  return times;
}

Json layer_times_to_json(const LayerTimes& times) {
  Json layers = Json::array();
  for (const LayerProfile& layer : times.layers) {
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
  json["tokens_per_microbatch"] = times.tokens_per_micro_batch;
  if (times.hop_ns) json["hop_ms"] = *times.hop_ns / kNsPerMs;
  return json;
}

}  // namespace stagecoach
