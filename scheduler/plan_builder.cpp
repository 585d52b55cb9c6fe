#include "scheduler/plan_builder.h"

#include <map>

namespace stagecoach {

StageLayers single_layer_stages(int stage_count) {
  StageLayers layers;
  for (int stage = 0; stage < stage_count; ++stage) layers.emplace_back(stage, stage);
  return layers;
}

namespace {

/// Position of a kind in data-flow order.
int rank_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return 0;
    case ActionKind::kForwardBackward:
      return 1;
    case ActionKind::kBackward:
      return 2;
    case ActionKind::kInputGradient:
      return 3;
    case ActionKind::kWeightGradient:
      return 4;
  }
  return 5;
}

}  // namespace

Plan build_plan(std::string schedule, int micro_batches, const StageLayers& layers,
                const std::vector<std::vector<StageWork>>& device_work) {
  // Keys sort into data-flow order: forwards by rising stage, the rest by falling stage.
  using Key = std::pair<int, int>;
  auto key_of = [](const StageWork& work) {
    int rank = rank_of(work.kind);
    return Key{rank, runs_forward(work.kind) ? work.stage : -work.stage};
  };
  std::map<Key, StageWork> used;
  for (const std::vector<StageWork>& list : device_work) {
    for (const StageWork& work : list) used.emplace(key_of(work), work);
  }
  Plan plan;
  plan.schedule = std::move(schedule);
  plan.micro_batches = micro_batches;
  plan.residence = Residence::kBound;
  std::map<Key, int> index_of;
  for (const auto& [key, work] : used) {
    index_of[key] = static_cast<int>(plan.stages.size());
    plan.stages.push_back(Stage{work.kind, layers[work.stage].first, layers[work.stage].second});
  }
  for (const std::vector<StageWork>& list : device_work) {
    std::vector<Action>& actions = plan.device_actions.emplace_back();
    for (const StageWork& work : list) {
      actions.push_back(Action{index_of[key_of(work)], work.micro_batch, work.with_next});
    }
  }
  return plan;
}

Plan repeat_plan(const Plan& plan, int iterations) {
  Plan repeated = plan;
  repeated.accumulation = plan.micro_batches;
  repeated.micro_batches = plan.micro_batches * iterations;
  repeated.rounds = plan.rounds * iterations;
  for (std::vector<Action>& actions : repeated.device_actions) {
    std::vector<Action> once = actions;
    for (int iteration = 1; iteration < iterations; ++iteration) {
      for (Action action : once) {
        action.micro_batch += iteration * plan.micro_batches;
        actions.push_back(action);
      }
    }
  }
  return repeated;
}

}  // namespace stagecoach
