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

Json memory_to_json(const ModelPlan& plan) {
  const StageBytes& bytes = plan.device_bytes;
  Json json = Json::object();
  json["device_bytes"] = bytes.total();
  json["parameter_bytes"] = 2 * bytes.parameters;
  json["gradient_bytes"] = 2 * bytes.gradients + bytes.gradient_sums;
  json["boundary_bytes"] = 2 * (bytes.in + bytes.out);
  json["activation_bytes"] = bytes.work;
  json["host_state_bytes"] = plan.host.state.state();
  json["host_frozen_bytes"] = plan.host.state.frozen;
  json["host_mapped_bytes"] = plan.host.state.mapped;
  json["host_landing_bytes"] = plan.host.state.landing;
  json["host_activation_bytes"] = plan.host.boundaries;
  json["host_staging_bytes"] = plan.host.staging;
  json["host_pinned_bytes"] = plan.host.total();
  return json;
}

std::string memory_to_text(const ModelPlan& plan) {
  const StageBytes& bytes = plan.device_bytes;
  ByteCount mapped = plan.host.state.mapped;
  return fmt::format(
      "memory of each device: {} ({} parameters of two stages, {} gradients, {} boundaries, {} "
      "activations and workspace)\n"
      "host memory: {} ({} state, of which {} frozen; {} where more gradients land; {} "
      "activations; {} batches), all pinned{}\n",
      format_bytes(bytes.total()), format_bytes(2 * bytes.parameters),
      format_bytes(2 * bytes.gradients + bytes.gradient_sums),
      format_bytes(2 * (bytes.in + bytes.out)), format_bytes(bytes.work),
      format_bytes(plan.host.total()), format_bytes(plan.host.state.state()),
      format_bytes(plan.host.state.frozen), format_bytes(plan.host.state.landing),
      format_bytes(plan.host.boundaries), format_bytes(plan.host.staging),
      mapped == 0 ? "" : fmt::format("; {} stay in the model's files", format_bytes(mapped)));
}

}  // namespace stagecoach
