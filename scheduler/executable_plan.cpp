#include "scheduler/executable_plan.h"

#include <fmt/format.h>
#include <set>
#include <utility>

namespace stagecoach {

namespace {

Status check_policies(const Plan& plan) {
  bool one_update = plan.accumulation == 0 || plan.accumulation == plan.micro_batches;
  if (plan.admission == Admission::kStatic && plan.version_rule == VersionRule::kFlush &&
      one_update && plan.weight_copies == 1) {
    return Status::ok();
  }
  return unimplemented(
      fmt::format("plan of schedule '{}' is admitted by a gate, has several updates or versions, "
                  "or copies of weights; the executor runs one synchronous iteration in a static "
                  "order",
                  plan.schedule));
}

Status check_bound_stages(const Plan& plan) {
  std::vector<int> numbers = stage_numbers(plan);
  std::vector<bool> has_forward(plan.stages.size(), false);
  for (size_t index = 0; index < plan.stages.size(); ++index) {
    if (plan.stages[index].kind == ActionKind::kForward) has_forward[numbers[index]] = true;
  }
  for (size_t index = 0; index < plan.stages.size(); ++index) {
    const Stage& stage = plan.stages[index];
    if (has_forward[numbers[index]] && stage.kind != ActionKind::kForwardBackward) continue;
    return invalid_argument(fmt::format(
        "plan of schedule '{}' binds weights, but its stage {} ({} of layers {} to {}) "
        "is not the backward of a forward stage of the same layers",
        plan.schedule, index, action_kind_name(stage.kind), stage.first_layer, stage.last_layer));
  }
  return Status::ok();
}

/// A streamed device has sums for the stage and round it is at, so each is one run of actions.
Status check_streamed_slots(const Plan& plan) {
  std::set<std::pair<int, int>> done;
  for (int device = 0; device < plan.device_count(); ++device) {
    std::pair<int, int> now{-1, -1};
    const std::vector<Action>& actions = plan.device_actions[device];
    for (size_t index = 0; index < actions.size(); ++index) {
      const Action& action = actions[index];
      std::pair<int, int> slot{action.stage, plan.round_of(action.micro_batch)};
      ActionKind kind = plan.stage_of(action).kind;
      if (makes_input_gradient(kind) != makes_weight_gradient(kind)) {
        return unimplemented(
            fmt::format("plan of schedule '{}' streams weights and splits backward at device {}, "
                        "entry {}; the executor splits it where weights are bound",
                        plan.schedule, device, index));
      }
      if (slot == now) continue;
      now = slot;
      if (!makes_weight_gradient(kind) || done.insert(slot).second) continue;
      return unimplemented(
          fmt::format("plan of schedule '{}' streams stage {} again for round {} at device {}, "
                      "entry {}; the executor adds its gradients up in one go",
                      plan.schedule, slot.first, slot.second, device, index));
    }
  }
  return Status::ok();
}

Status check_order(const Plan& plan) {
  for (int device = 0; device < plan.device_count(); ++device) {
    std::vector<int> latest(plan.stages.size(), -1);
    const std::vector<Action>& actions = plan.device_actions[device];
    for (size_t index = 0; index < actions.size(); ++index) {
      const Action& action = actions[index];
      if (action.with_next) {
        return unimplemented(
            fmt::format("plan of schedule '{}' runs two actions in one slot at device {}, entry "
                        "{}; the executor runs one at a time",
                        plan.schedule, device, index));
      }
      if (!makes_weight_gradient(plan.stage_of(action).kind)) continue;
      int& before = latest[action.stage];
      if (action.micro_batch < before) {
        return invalid_argument(fmt::format(
            "plan of schedule '{}' adds the gradient of micro-batch {} behind that of {} at device "
            "{}, entry {}; sums are in the order of micro-batches",
            plan.schedule, action.micro_batch, before, device, index));
      }
      before = action.micro_batch;
    }
  }
  return Status::ok();
}

}  // namespace

Status check_executable(const Plan& plan) {
  STAGECOACH_RETURN_IF_ERROR(check_policies(plan));
  STAGECOACH_RETURN_IF_ERROR(check_order(plan));
  return plan.residence == Residence::kBound ? check_bound_stages(plan)
                                             : check_streamed_slots(plan);
}

}  // namespace stagecoach
