#include "scheduler/layer_profile.h"

#include <cmath>
#include <fmt/format.h>
#include <utility>

namespace stagecoach {

std::string_view update_mode_name(UpdateMode mode) {
  switch (mode) {
    case UpdateMode::kBarrier:
      return "barrier";
    case UpdateMode::kOverlap:
      return "overlap";
    case UpdateMode::kAsync:
      return "async";
  }
  return "";
}

Result<UpdateMode> parse_update_mode(std::string_view name) {
  for (UpdateMode mode : {UpdateMode::kBarrier, UpdateMode::kOverlap, UpdateMode::kAsync}) {
    if (name == update_mode_name(mode)) return mode;
  }
  return invalid_argument(
      fmt::format("--update is '{}'; it must be barrier, overlap or async", name));
}

namespace {

Status check_layer(const LayerProfile& layer, size_t index) {
  const std::pair<const char*, double> times[] = {{"forward", layer.forward_ns},
                                                  {"recompute", layer.recompute_ns},
                                                  {"backward", layer.backward_ns},
                                                  {"early stop", layer.early_stop_ns},
                                                  {"update", layer.update_ns}};
  for (const auto& [name, time_ns] : times) {
    if (std::isfinite(time_ns) && time_ns >= 0) continue;
    return invalid_argument(
        fmt::format("layer {} ('{}'): {} time is {} ns; it must be a number of at least 0", index,
                    layer.name, name, time_ns));
  }
  if (layer.forward_ns > 0 && layer.backward_ns > 0) return Status::ok();
  return invalid_argument(fmt::format("layer {} ('{}'): {} time is 0; it must be more", index,
                                      layer.name, layer.forward_ns > 0 ? "backward" : "forward"));
}

}  // namespace

Status check_step_setup(const StepSetup& setup) {
  if (setup.layers.empty()) return invalid_argument("there are no layers");
  if (setup.devices.empty()) return invalid_argument("there are no devices");
  for (size_t index = 0; index < setup.layers.size(); ++index) {
    STAGECOACH_RETURN_IF_ERROR(check_layer(setup.layers[index], index));
  }
  for (const PlannedDevice& device : setup.devices) {
    if (!std::isfinite(device.speed) || device.speed <= 0) {
      return invalid_argument(fmt::format("device '{}': speed is {}; it must be more than 0",
                                          device.name, device.speed));
    }
    if (device.uplink < static_cast<int>(setup.uplinks.size())) continue;
    return invalid_argument(fmt::format("device '{}': uplink is {}; there are {}", device.name,
                                        device.uplink, setup.uplinks.size()));
  }
  if (setup.rounds < 1 || setup.micro_batches < 1 || setup.micro_batches % setup.rounds != 0) {
    return invalid_argument(fmt::format("{} micro-batches in {} rounds; rounds must divide them",
                                        setup.micro_batches, setup.rounds));
  }
  return Status::ok();
}

std::vector<int> micro_batch_shares(const StepSetup& setup) {
  double speeds = 0, before = 0;
  for (const PlannedDevice& device : setup.devices) speeds += device.speed;
  std::vector<int> firsts = {0};
  for (const PlannedDevice& device : setup.devices) {
    before += device.speed;
    // Whole shares stay whole however their sums are rounded.
    constexpr double kRounding = 1e-9;
    firsts.push_back(static_cast<int>(setup.round_size() * before / speeds + kRounding));
  }
  firsts.back() = setup.round_size();
  return firsts;
}

}  // namespace stagecoach
