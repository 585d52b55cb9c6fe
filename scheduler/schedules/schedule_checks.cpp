#include "scheduler/schedules/schedule_checks.h"

#include <fmt/format.h>

namespace stagecoach {

Status check_range(std::string_view schedule, std::string_view name, int value, int min, int max) {
  if (value >= min && value <= max) return Status::ok();
  return refuse_parameter(
      schedule, name, value,
      max == kNoMaximum ? fmt::format("at least {}", min) : fmt::format("from {} to {}", min, max));
}

Status refuse_parameter(std::string_view schedule, std::string_view name, int value,
                        std::string_view allowed) {
  return invalid_argument(
      fmt::format("schedule {}: {} is {}; it must be {}", schedule, name, value, allowed));
}

Result<StageLayers> stage_layers(std::string_view schedule, const ScheduleParameters& parameters,
                                 int stage_count) {
  if (parameters.layers.empty()) return single_layer_stages(stage_count);
  if (static_cast<int>(parameters.layers.size()) == stage_count) return parameters.layers;
  return invalid_argument(fmt::format("schedule {} has {} model stages; layers were given for {}",
                                      schedule, stage_count, parameters.layers.size()));
}

ClosedForm idle_share(const ScheduleParameters& parameters, const StageTimes& times, double idle_ns,
                      BubbleDefinition definition) {
  double work = static_cast<double>(times.forward_ns + times.backward_ns) *
                parameters.micro_batches * parameters.iterations.value_or(1);
  return {definition, idle_ns / (work + idle_ns)};
}

std::optional<ClosedForm> looped_bubble(const ScheduleParameters& parameters, int chunks) {
  if (parameters.iterations.value_or(1) != 1) return std::nullopt;
  if (chunks > 1 && parameters.micro_batches % parameters.stages != 0) return std::nullopt;
  double fill = parameters.stages - 1;
  double slots = static_cast<double>(parameters.micro_batches) * chunks;
  return ClosedForm{BubbleDefinition::kMakespan, fill / (slots + fill)};
}

}  // namespace stagecoach
