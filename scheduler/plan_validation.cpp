#include "scheduler/plan_validation.h"

#include <algorithm>
#include <fmt/format.h>

#include "scheduler/plan_flow.h"

namespace stagecoach {

namespace {

std::string action_text(const Plan& plan, const Action& action) {
  return fmt::format("{}{}:{}", action_kind_name(plan.stage_of(action).kind), action.stage,
                     action.micro_batch);
}

/// "device 2, entry 5 (F1:3)".
std::string place(const Plan& plan, int device, size_t index) {
  return fmt::format("device {}, entry {} ({})", device, index,
                     action_text(plan, plan.device_actions[device][index]));
}

Status check_gate(const Plan& plan) {
  if (plan.admission != Admission::kGate) return Status::ok();
  if (plan.in_flight_limit.empty()) {
    return invalid_argument("plan is admitted by a gate but has no in-flight limits");
  }
  for (const Stage& stage : plan.stages) {
    if (stage.kind == ActionKind::kForward || stage.kind == ActionKind::kBackward) continue;
    return invalid_argument(
        fmt::format("plan is admitted by a gate, which runs F and B only, not {}",
                    action_kind_name(stage.kind)));
  }
  for (int device = 0; device < plan.device_count(); ++device) {
    const std::vector<Action>& actions = plan.device_actions[device];
    for (size_t index = 0; index < actions.size(); ++index) {
      if (plan.stage_of(actions[index]).first_layer == plan.stage_of(actions.front()).first_layer &&
          !actions[index].with_next) {
        continue;
      }
      return invalid_argument(
          fmt::format("plan is admitted by a gate, which runs one stage a device and one action at "
                      "a time; {} does not fit",
                      place(plan, device, index)));
    }
  }
  return Status::ok();
}

Status check_sizes(const Plan& plan) {
  if (plan.micro_batches < 1 || plan.rounds < 1 || plan.micro_batches % plan.rounds != 0) {
    return invalid_argument(
        fmt::format("plan has {} micro-batches in {} rounds; rounds must divide them",
                    plan.micro_batches, plan.rounds));
  }
  if (plan.accumulation < 0 || plan.weight_copies < 1) {
    return invalid_argument(
        fmt::format("plan has accumulation {} and {} weight copies; they must be at least 0 and 1",
                    plan.accumulation, plan.weight_copies));
  }
  if (!plan.in_flight_limit.empty() &&
      static_cast<int>(plan.in_flight_limit.size()) != plan.device_count()) {
    return invalid_argument(fmt::format("plan has {} in-flight limits for {} devices",
                                        plan.in_flight_limit.size(), plan.device_count()));
  }
  for (size_t device = 0; device < plan.in_flight_limit.size(); ++device) {
    if (plan.in_flight_limit[device] >= 1) continue;
    return invalid_argument(fmt::format("plan limits device {} to {} in flight; at least 1", device,
                                        plan.in_flight_limit[device]));
  }
  return Status::ok();
}

Status check_stages(const Plan& plan, int layer_count) {
  for (const Stage& stage : plan.stages) {
    if (stage.first_layer >= 0 && stage.last_layer >= stage.first_layer &&
        stage.last_layer < layer_count) {
      continue;
    }
    return invalid_argument(fmt::format("plan has a stage of layers {} to {}; there are {} layers",
                                        stage.first_layer, stage.last_layer, layer_count));
  }
  return Status::ok();
}

Status check_indices(const Plan& plan) {
  for (int device = 0; device < plan.device_count(); ++device) {
    const std::vector<Action>& actions = plan.device_actions[device];
    for (size_t index = 0; index < actions.size(); ++index) {
      const Action& action = actions[index];
      if (action.stage < 0 || action.stage >= static_cast<int>(plan.stages.size()) ||
          action.micro_batch < 0 || action.micro_batch >= plan.micro_batches) {
        return invalid_argument(fmt::format(
            "plan names stage {} and micro-batch {}, which do not exist, at device {}, entry {}",
            action.stage, action.micro_batch, device, index));
      }
    }
    if (!actions.empty() && actions.back().with_next) {
      return invalid_argument(
          fmt::format("plan lets {} share a slot with the next entry; it is the last",
                      place(plan, device, actions.size() - 1)));
    }
  }
  return Status::ok();
}

/// Per (micro-batch, layer): how often it runs forward, backward (B), and by halves (I and W).
class Coverage {
 public:
  Coverage(int micro_batches, int layers)
      : layers_(layers), counts_(static_cast<size_t>(micro_batches) * layers) {}

  void add(const Stage& stage, int micro_batch) {
    for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
      Counts& counts = counts_[static_cast<size_t>(micro_batch) * layers_ + layer];
      if (runs_forward(stage.kind)) ++counts.forward;
      if (makes_input_gradient(stage.kind)) ++counts.input;
      if (makes_weight_gradient(stage.kind)) ++counts.weight;
      if (stage.kind == ActionKind::kInputGradient) ++counts.input_alone;
      if (stage.kind == ActionKind::kWeightGradient) ++counts.weight_alone;
    }
  }

  Status check(bool inference) const {
    int expected = inference ? 0 : 1;
    for (size_t index = 0; index < counts_.size(); ++index) {
      const Counts& counts = counts_[index];
      if (counts.forward == 1 && counts.input == expected && counts.weight == expected &&
          counts.input_alone == counts.weight_alone) {
        continue;
      }
      size_t micro_batch = index / layers_, layer = index % layers_;
      if (counts.input_alone + counts.weight_alone > 0) {
        return invalid_argument(fmt::format(
            "plan runs micro-batch {} of layer {} {} times forward, {} times to its input gradient "
            "(B or I) and {} times to its weight gradient (B or W); it must be 1, {} and {}, by "
            "one "
            "B or by I and W",
            micro_batch, layer, counts.forward, counts.input, counts.weight, expected, expected));
      }
      return invalid_argument(fmt::format(
          "plan runs micro-batch {} of layer {} {} times forward and {} times backward; it must be "
          "1 and {}",
          micro_batch, layer, counts.forward, counts.input, expected));
    }
    return Status::ok();
  }

 private:
  struct Counts {
    int forward = 0, input = 0, weight = 0, input_alone = 0, weight_alone = 0;
  };
  int layers_;
  std::vector<Counts> counts_;
};

/// Tables below are per (micro-batch, layer). A plan that names huge numbers but does little (a
/// typing error in a file) is refused before they exhaust memory.
Status check_extent(const Plan& plan, int layer_count) {
  constexpr int64_t kAlwaysFine = 1 << 20;
  int64_t cells = static_cast<int64_t>(plan.micro_batches) * layer_count;
  int64_t covered = 0;
  for (const std::vector<Action>& actions : plan.device_actions) {
    for (const Action& action : actions) covered += plan.stage_of(action).layer_count();
  }
  if (cells <= kAlwaysFine || covered >= cells) return Status::ok();
  return invalid_argument(
      fmt::format("plan has {} micro-batches of {} layers, {} in all, but its entries run only {}",
                  plan.micro_batches, layer_count, cells, covered));
}

Status check_coverage(const Plan& plan, int layer_count, bool inference) {
  STAGECOACH_RETURN_IF_ERROR(check_extent(plan, layer_count));
  Coverage coverage(plan.micro_batches, layer_count);
  for (const std::vector<Action>& actions : plan.device_actions) {
    for (const Action& action : actions) coverage.add(plan.stage_of(action), action.micro_batch);
  }
  return coverage.check(inference);
}

Status check_residence(const Plan& plan, int layer_count) {
  if (plan.residence != Residence::kBound) return Status::ok();
  std::vector<std::vector<int>> homes(layer_count);
  std::vector<int> device_of(static_cast<size_t>(plan.micro_batches) * layer_count, -1);
  for (int device = 0; device < plan.device_count(); ++device) {
    for (size_t index = 0; index < plan.device_actions[device].size(); ++index) {
      const Action& action = plan.device_actions[device][index];
      const Stage& stage = plan.stage_of(action);
      for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
        std::vector<int>& home = homes[layer];
        if (std::find(home.begin(), home.end(), device) == home.end()) home.push_back(device);
        if (static_cast<int>(home.size()) > plan.weight_copies) {
          return invalid_argument(
              fmt::format("plan binds layer {} to {} devices, but weights exist {} times: {}",
                          layer, home.size(), plan.weight_copies, place(plan, device, index)));
        }
        int& owner = device_of[static_cast<size_t>(action.micro_batch) * layer_count + layer];
        if (owner >= 0 && owner != device) {
          return invalid_argument(fmt::format(
              "plan runs micro-batch {} of layer {} on device {} and at {}; bound activations stay "
              "where they are",
              action.micro_batch, layer, owner, place(plan, device, index)));
        }
        owner = device;
      }
    }
  }
  return Status::ok();
}

Status check_in_flight(const Plan& plan) {
  if (plan.in_flight_limit.empty() || plan.admission == Admission::kGate) return Status::ok();
  for (int device = 0; device < plan.device_count(); ++device) {
    int in_flight = 0;
    for (size_t index = 0; index < plan.device_actions[device].size(); ++index) {
      ActionKind kind = plan.stage_of(plan.device_actions[device][index]).kind;
      if (kind == ActionKind::kForward) ++in_flight;
      if (kind == ActionKind::kBackward || kind == ActionKind::kInputGradient) --in_flight;
      if (in_flight > plan.in_flight_limit[device]) {
        return invalid_argument(fmt::format("plan has {} forwards in flight at {}; the limit is {}",
                                            in_flight, place(plan, device, index),
                                            plan.in_flight_limit[device]));
      }
    }
  }
  return Status::ok();
}

/// Bound layers make their own versions, so each device's list must complete an update before the
/// forward that needs it. (Streamed layers may be updated by others: the deadlock rule covers
/// them.)
Status check_versions(const Plan& plan, int layer_count, bool inference) {
  if (plan.residence != Residence::kBound || plan.weight_copies > 1 || inference ||
      plan.admission == Admission::kGate) {
    return Status::ok();
  }
  for (int device = 0; device < plan.device_count(); ++device) {
    std::vector<int> backwards(layer_count, 0);
    for (size_t index = 0; index < plan.device_actions[device].size(); ++index) {
      const Action& action = plan.device_actions[device][index];
      const Stage& stage = plan.stage_of(action);
      int version = required_version(plan, action.micro_batch);
      for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
        if (runs_forward(stage.kind) && backwards[layer] < version * plan.window_size()) {
          return invalid_argument(fmt::format(
              "plan needs version {} of layer {} at {}, but only {} of {} backwards that make it "
              "come before",
              version, layer, place(plan, device, index), backwards[layer],
              version * plan.window_size()));
        }
        if (makes_weight_gradient(stage.kind)) ++backwards[layer];
      }
    }
  }
  return Status::ok();
}

Status check_no_deadlock(const Plan& plan, int layer_count) {
  PlanFlow flow(plan, layer_count, {});
  std::vector<size_t> next(plan.device_actions.size(), 0);
  auto slot_end = [&](int device) {
    size_t end = next[device];
    while (plan.device_actions[device][end].with_next) ++end;
    return end + 1;
  };
  bool moved = true;
  while (moved) {
    moved = false;
    for (int device = 0; device < plan.device_count(); ++device) {
      const std::vector<Action>& actions = plan.device_actions[device];
      while (next[device] < actions.size()) {
        size_t end = slot_end(device), begin = next[device];
        bool ready = std::all_of(
            actions.begin() + begin, actions.begin() + end,
            [&](const Action& a) { return flow.ready_ns(device, a) != PlanFlow::kUnknown; });
        if (!ready) break;
        for (size_t i = begin; i < end; ++i) flow.finish(device, actions[i], 0);
        next[device] = end;
        moved = true;
      }
    }
  }
  for (int device = 0; device < plan.device_count(); ++device) {
    const std::vector<Action>& actions = plan.device_actions[device];
    for (size_t i = next[device]; i < actions.size() && i < slot_end(device); ++i) {
      PlanFlow::Missing missing = flow.missing(device, actions[i]);
      if (missing == PlanFlow::Missing::kNothing) continue;
      std::string what = missing == PlanFlow::Missing::kInput
                             ? "the input"
                             : fmt::format("version {} of the weights",
                                           required_version(plan, actions[i].micro_batch));
      return invalid_argument(fmt::format("plan deadlocks: device {} never gets {} of {}, entry {}",
                                          device, what, action_text(plan, actions[i]), i));
    }
  }
  return Status::ok();
}

}  // namespace

Status validate_plan(const Plan& plan, int layer_count, bool inference) {
  STAGECOACH_RETURN_IF_ERROR(check_sizes(plan));
  STAGECOACH_RETURN_IF_ERROR(check_stages(plan, layer_count));
  STAGECOACH_RETURN_IF_ERROR(check_indices(plan));
  STAGECOACH_RETURN_IF_ERROR(check_gate(plan));
  STAGECOACH_RETURN_IF_ERROR(check_coverage(plan, layer_count, inference));
  STAGECOACH_RETURN_IF_ERROR(check_residence(plan, layer_count));
  STAGECOACH_RETURN_IF_ERROR(check_in_flight(plan));
  STAGECOACH_RETURN_IF_ERROR(check_versions(plan, layer_count, inference));
  // A gate never waits for an entry that could not run, so its lists need no order.
  if (plan.admission == Admission::kGate) return Status::ok();
  return check_no_deadlock(plan, layer_count);
}

}  // namespace stagecoach
