#include "tools/plan_output.h"

#include <fmt/format.h>

namespace stagecoach {

Json stages_to_json(const std::vector<Stage>& stages) {
  Json json = Json::object();
  json["forward"] = Json::array();
  json["backward"] = Json::array();
  for (const Stage& stage : stages) {
    Json range(Json::Array{stage.first_layer, stage.last_layer});
    if (stage.kind == ActionKind::kForward) json["forward"].push_back(range);
    if (stage.kind == ActionKind::kBackward) json["backward"].push_back(range);
    if (stage.kind == ActionKind::kForwardBackward) json["fused"] = range;
  }
  return json;
}

std::string stages_to_text(const std::vector<Stage>& stages) {
  std::string text;
  for (ActionKind kind :
       {ActionKind::kForward, ActionKind::kForwardBackward, ActionKind::kBackward}) {
    std::string ranges;
    for (const Stage& stage : stages) {
      if (stage.kind != kind) continue;
      ranges += stage.first_layer == stage.last_layer
                    ? fmt::format(" {}", stage.first_layer)
                    : fmt::format(" {}-{}", stage.first_layer, stage.last_layer);
    }
    if (ranges.empty()) continue;
    const char* name = kind == ActionKind::kForward    ? "forward"
                       : kind == ActionKind::kBackward ? "backward"
                                                       : "fused";
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", name, ranges);
  }
  return text;
}

Json lanes_to_json(const StepPrediction& prediction) {
  Json json = Json::object();
  for (int lane = 0; lane < kStepLanes; ++lane) {
    std::string_view name = step_lane_name(static_cast<StepLane>(lane));
    json[name]["busy_fraction"] = prediction.busy_fraction[lane];
  }
  return json;
}

std::string lanes_to_text(const StepPrediction& prediction) {
  std::string text;
  for (int lane = 0; lane < kStepLanes; ++lane) {
    bool is_shared = lane > static_cast<int>(StepLane::kHostUpdate);
    if (is_shared && prediction.busy_fraction[lane] == 0) continue;  // no limit, or not used
    text += fmt::format("{}{} {:.1f} %", lane == 0 ? "" : ", ",
                        step_lane_name(static_cast<StepLane>(lane)),
                        100 * prediction.busy_fraction[lane]);
  }
  return text;
}

}  // namespace stagecoach
