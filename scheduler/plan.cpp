#include "scheduler/plan.h"

#include <fmt/format.h>

namespace stagecoach {

std::string_view action_kind_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "F";
    case ActionKind::kBackward:
      return "B";
    case ActionKind::kForwardBackward:
      return "FB";
  }
  return "?";
}

namespace {

bool runs_forward(ActionKind kind) {
  return kind != ActionKind::kBackward;
}
bool runs_backward(ActionKind kind) {
  return kind != ActionKind::kForward;
}

/// Per (micro-batch, layer): how often it runs forward and backward.
class Coverage {
 public:
  Coverage(int micro_batches, int layers)
      : layers_(layers), forward_(micro_batches * layers), backward_(micro_batches * layers) {}

  void add(const Stage& stage, int micro_batch) {
    for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
      if (runs_forward(stage.kind)) ++forward_[micro_batch * layers_ + layer];
      if (runs_backward(stage.kind)) ++backward_[micro_batch * layers_ + layer];
    }
  }

  Status check(bool inference) const {
    for (size_t index = 0; index < forward_.size(); ++index) {
      int expected_backward = inference ? 0 : 1;
      if (forward_[index] == 1 && backward_[index] == expected_backward) continue;
      return invalid_argument(fmt::format(
          "plan runs micro-batch {} of layer {} {} times forward and {} times backward; it must be "
          "1 "
          "and {}",
          index / layers_, index % layers_, forward_[index], backward_[index], expected_backward));
    }
    return Status::ok();
  }

 private:
  int layers_;
  std::vector<int> forward_;
  std::vector<int> backward_;
};

/// What is on the host so far, per (boundary, micro-batch): outputs and gradients that exist.
class DataFlow {
 public:
  DataFlow(int micro_batches, int layers)
      : layers_(layers),
        forward_done_(micro_batches * (layers + 1)),
        gradient_(forward_done_.size()) {
    for (int m = 0; m < micro_batches; ++m) forward_done_[m * (layers + 1)] = 1;
  }

  bool ready(const Stage& stage, int micro_batch) const {
    if (!forward_done_[index(stage.first_layer, micro_batch)]) return false;
    if (stage.kind != ActionKind::kBackward) return true;
    return gradient_[index(stage.last_layer + 1, micro_batch)] != 0;
  }

  void run(const Stage& stage, int micro_batch) {
    if (runs_forward(stage.kind)) {
      for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
        forward_done_[index(layer + 1, micro_batch)] = 1;
      }
    }
    if (runs_backward(stage.kind)) gradient_[index(stage.first_layer, micro_batch)] = 1;
  }

 private:
  size_t index(int boundary, int micro_batch) const {
    return static_cast<size_t>(micro_batch) * (layers_ + 1) + boundary;
  }
  int layers_;
  std::vector<char> forward_done_;
  std::vector<char> gradient_;
};

Status check_no_deadlock(const Plan& plan, int layer_count) {
  DataFlow flow(plan.micro_batches, layer_count);
  std::vector<size_t> next(plan.device_actions.size(), 0);
  bool moved = true;
  while (moved) {
    moved = false;
    for (size_t device = 0; device < next.size(); ++device) {
      const std::vector<Action>& actions = plan.device_actions[device];
      while (next[device] < actions.size()) {
        const Action& action = actions[next[device]];
        const Stage& stage = plan.stages[action.stage];
        if (!flow.ready(stage, action.micro_batch)) break;
        flow.run(stage, action.micro_batch);
        ++next[device];
        moved = true;
      }
    }
  }
  for (size_t device = 0; device < next.size(); ++device) {
    if (next[device] == plan.device_actions[device].size()) continue;
    const Action& action = plan.device_actions[device][next[device]];
    return invalid_argument(fmt::format("plan deadlocks: device {} never gets the input of {}{}:{}",
                                        device, action_kind_name(plan.stages[action.stage].kind),
                                        action.stage, action.micro_batch));
  }
  return Status::ok();
}

}  // namespace

Status validate_plan(const Plan& plan, int layer_count, bool inference) {
  if (plan.micro_batches < 1 || plan.rounds < 1 || plan.micro_batches % plan.rounds != 0) {
    return invalid_argument(
        fmt::format("plan has {} micro-batches in {} rounds; rounds must divide them",
                    plan.micro_batches, plan.rounds));
  }
  for (const Stage& stage : plan.stages) {
    if (stage.first_layer < 0 || stage.last_layer < stage.first_layer ||
        stage.last_layer >= layer_count) {
      return invalid_argument(
          fmt::format("plan has a stage of layers {} to {}; there are {} layers", stage.first_layer,
                      stage.last_layer, layer_count));
    }
  }
  Coverage coverage(plan.micro_batches, layer_count);
  for (const std::vector<Action>& actions : plan.device_actions) {
    for (const Action& action : actions) {
      if (action.stage < 0 || action.stage >= static_cast<int>(plan.stages.size()) ||
          action.micro_batch < 0 || action.micro_batch >= plan.micro_batches) {
        return invalid_argument(
            fmt::format("plan names stage {} and micro-batch {}, which do not exist", action.stage,
                        action.micro_batch));
      }
      coverage.add(plan.stages[action.stage], action.micro_batch);
    }
  }
  STAGECOACH_RETURN_IF_ERROR(coverage.check(inference));
  return check_no_deadlock(plan, layer_count);
}

std::string plan_to_text(const Plan& plan) {
  std::string text;
  for (size_t device = 0; device < plan.device_actions.size(); ++device) {
    text += fmt::format("g{}|", device);
    for (const Action& action : plan.device_actions[device]) {
      text += fmt::format(" {}{}:{}", action_kind_name(plan.stages[action.stage].kind),
                          action.stage, action.micro_batch);
    }
    text += '\n';
  }
  return text;
}

}  // namespace stagecoach
