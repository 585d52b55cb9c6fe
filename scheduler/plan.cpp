#include "scheduler/plan.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace stagecoach {

std::string_view action_kind_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "F";
    case ActionKind::kBackward:
      return "B";
    case ActionKind::kForwardBackward:
      return "FB";
    case ActionKind::kInputGradient:
      return "I";
    case ActionKind::kWeightGradient:
      return "W";
  }
  return "?";
}

bool runs_forward(ActionKind kind) {
  return kind == ActionKind::kForward || kind == ActionKind::kForwardBackward;
}

bool makes_input_gradient(ActionKind kind) {
  return kind != ActionKind::kForward && kind != ActionKind::kWeightGradient;
}

bool makes_weight_gradient(ActionKind kind) {
  return kind != ActionKind::kForward && kind != ActionKind::kInputGradient;
}

int Plan::layer_count() const {
  int count = 0;
  for (const Stage& stage : stages) count = std::max(count, stage.last_layer + 1);
  return count;
}

std::vector<int> stage_numbers(const Plan& plan) {
  std::map<std::pair<int, int>, int> number_of;
  std::vector<int> numbers;
  for (const Stage& stage : plan.stages) {
    int next = static_cast<int>(number_of.size());
    numbers.push_back(
        number_of.try_emplace({stage.first_layer, stage.last_layer}, next).first->second);
  }
  return numbers;
}

std::string plan_to_text(const Plan& plan) {
  std::string text;
  for (size_t device = 0; device < plan.device_actions.size(); ++device) {
    text += fmt::format("g{}|", device);
    for (const Action& action : plan.device_actions[device]) {
      text += fmt::format(" {}{}:{}", action_kind_name(plan.stage_of(action).kind), action.stage,
                          action.micro_batch);
    }
    text += '\n';
  }
  return text;
}

}  // namespace stagecoach
