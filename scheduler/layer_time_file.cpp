#include "tools/layer_time_file.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "core/file.h"
#include "core/json.h"
#include "core/suggest.h"

namespace stagecoach {

namespace {

constexpr double kNsPerMs = 1e6;
constexpr double kMostMs = 1e9;

/// Fields of an object, read once each; what is left over is unknown.
class Fields {
 public:
  Fields(const Json& object, std::string where, std::vector<std::string> known)
      : object_(object), where_(std::move(where)), known_(std::move(known)) {}

  Status check_names() const {
    if (!object_.is_object()) {
      return invalid_argument(
          fmt::format("{} is a {}; it must be a table", where_, object_.type_name()));
    }
    for (const auto& [name, value] : object_.members()) {
      if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      std::string nearest = nearest_name(name, known_);
      return invalid_argument(fmt::format("{}: unknown field '{}'; did you mean '{}'?", where_,
                                          name, nearest.empty() ? known_.front() : nearest));
    }
    return Status::ok();
  }

  /// A number from `least` to `most`; `fallback` where absent, unless that is NaN.
  Result<double> number(const char* name, double least, double most, double fallback) const {
    const Json* value = object_.find(name);
    if (value == nullptr) {
      if (!std::isnan(fallback)) return fallback;
      return invalid_argument(
          fmt::format("{}: '{}' is missing; it must be a number", where_, name));
    }
    if (!value->is_number()) {
      return invalid_argument(
          fmt::format("{}: {} is {}; it must be a number", where_, name, value->dump()));
    }
    double found = value->as_number();
    if (found >= least && found <= most) return found;
    return invalid_argument(fmt::format("{}: {} is {}; it must be from {} to {}", where_, name,
                                        value->dump(), least, most));
  }

 private:
  const Json& object_;
  std::string where_;
  std::vector<std::string> known_;
};

constexpr double kRequired = std::numeric_limits<double>::quiet_NaN();
constexpr double kLeastMs = 1e-6;
constexpr double kMostBytes = 1e15;

Result<LayerProfile> read_layer(const Json& json, const std::string& where) {
  Fields fields(json, where,
                {"name", "forward_ms", "backward_ms", "recompute_ms", "parameter_bytes",
                 "activation_bytes", "boundary_bytes"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  LayerProfile layer;
  const Json* name = json.find("name");
  if (name != nullptr && !name->is_string()) {
    return invalid_argument(fmt::format("{}: name is {}; it must be text", where, name->dump()));
  }
  layer.name = name != nullptr ? name->as_string() : where.substr(where.rfind("layers"));
  STAGECOACH_ASSIGN_OR_RETURN(double forward,
                              fields.number("forward_ms", kLeastMs, kMostMs, kRequired));
  STAGECOACH_ASSIGN_OR_RETURN(double backward,
                              fields.number("backward_ms", kLeastMs, kMostMs, kRequired));
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
  return layer;
}

}  // namespace

Result<LayerTimes> read_layer_times(const std::string& path) {
  STAGECOACH_ASSIGN_OR_RETURN(std::string text, read_file(path));
  Result<Json> json = Json::parse(text);
  if (!json.is_ok()) return json.status().with_context(path);
  Fields fields(*json, path, {"layers", "hop_ms", "tokens_per_microbatch"});
  STAGECOACH_RETURN_IF_ERROR(fields.check_names());
  const Json* layers = json->find("layers");
  if (layers == nullptr || !layers->is_array() || layers->items().empty()) {
    return invalid_argument(fmt::format("{}: 'layers' must be a list of at least one layer", path));
  }
  LayerTimes times;
  for (const Json& item : layers->items()) {
    std::string where = fmt::format("{}: layers[{}]", path, times.layers.size());
    STAGECOACH_ASSIGN_OR_RETURN(LayerProfile layer, read_layer(item, where));
    times.layers.push_back(std::move(layer));
  }
  if (json->find("hop_ms") != nullptr) {
    STAGECOACH_ASSIGN_OR_RETURN(double hop, fields.number("hop_ms", 0, kMostMs, kRequired));
    times.hop_ns = hop * kNsPerMs;
  }
  STAGECOACH_ASSIGN_OR_RETURN(times.tokens_per_micro_batch,
                              fields.number("tokens_per_microbatch", 0, kMostBytes, 0));
  return times;
}

}  // namespace stagecoach
