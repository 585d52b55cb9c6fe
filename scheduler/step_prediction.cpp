#include "scheduler/step_prediction.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace stagecoach {

std::string_view step_lane_name(StepLane lane) {
  switch (lane) {
    case StepLane::kCompute:
      return "compute";
    case StepLane::kParametersUp:
      return "parameters_up";
    case StepLane::kActivationsUp:
      return "activations_up";
    case StepLane::kActivationsDown:
      return "activations_down";
    case StepLane::kGradientsDown:
      return "gradients_down";
    case StepLane::kHostUpdate:
      return "host_update";
    case StepLane::kUplinksUp:
      return "uplinks_up";
    case StepLane::kUplinksDown:
      return "uplinks_down";
    case StepLane::kHostMemory:
      return "host_memory";
  }
  return "";
}

std::string_view StepPrediction::bottleneck() const {
  const std::pair<std::string_view, double> all[] = {
      {"compute", lane(StepLane::kCompute)},
      {"link up", lane(StepLane::kParametersUp) + lane(StepLane::kActivationsUp)},
      {"link down", lane(StepLane::kActivationsDown) + lane(StepLane::kGradientsDown)},
      {"host update", lane(StepLane::kHostUpdate)},
      {"uplinks up", lane(StepLane::kUplinksUp)},
      {"uplinks down", lane(StepLane::kUplinksDown)},
      {"host memory", lane(StepLane::kHostMemory)}};
  const auto* most = std::max_element(
      std::begin(all), std::end(all),
      [](const auto& left, const auto& right) { return left.second < right.second; });
  return most->first;
}

}  // namespace stagecoach
