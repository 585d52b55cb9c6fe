#include "scheduler/plan_simulation.h"

#include <algorithm>
#include <limits>

namespace stagecoach {

namespace {

constexpr double kNotYet = -1;

/// Times at which boundaries and gradients exist, per (boundary, micro-batch).
struct ReadyTimes {
  ReadyTimes(int micro_batches, int layers)
      : stride(layers + 1), forward(micro_batches * stride, kNotYet), gradient(forward) {
    for (int m = 0; m < micro_batches; ++m) forward[m * stride] = 0;
  }
  /// When `stage` may start on `micro_batch`, or kNotYet.
  double start_of(const Stage& stage, int micro_batch) const {
    double input = forward[micro_batch * stride + stage.first_layer];
    if (stage.kind != ActionKind::kBackward || input == kNotYet) return input;
    double grad = gradient[micro_batch * stride + stage.last_layer + 1];
    return grad == kNotYet ? kNotYet : std::max(input, grad);
  }
  void finish(const Stage& stage, int micro_batch, double end) {
    if (stage.kind != ActionKind::kBackward) {
      for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
        forward[micro_batch * stride + layer + 1] = end;
      }
    }
    if (stage.kind != ActionKind::kForward)
      gradient[micro_batch * stride + stage.first_layer] = end;
  }

  int stride;
  std::vector<double> forward;
  std::vector<double> gradient;
};

}  // namespace

PlanTimeline simulate_plan(const Plan& plan, int layer_count, const ActionDuration& duration) {
  PlanTimeline timeline;
  ReadyTimes ready(plan.micro_batches, layer_count);
  std::vector<double> device_free(plan.device_actions.size(), 0);
  timeline.actions.resize(plan.device_actions.size());
  double work = 0;
  double first_start = std::numeric_limits<double>::infinity();
  bool moved = true;
  while (moved) {
    moved = false;
    for (int device = 0; device < plan.device_count(); ++device) {
      const std::vector<Action>& actions = plan.device_actions[device];
      std::vector<PlanTimeline::Interval>& done = timeline.actions[device];
      while (done.size() < actions.size()) {
        const Action& action = actions[done.size()];
        const Stage& stage = plan.stages[action.stage];
        double input = ready.start_of(stage, action.micro_batch);
        if (input == kNotYet) break;
        double length = duration(device, static_cast<int>(done.size()));
        double start = std::max(input, device_free[device]);
        ready.finish(stage, action.micro_batch, start + length);
        device_free[device] = start + length;
        done.push_back({start, start + length});
        work += length;
        first_start = std::min(first_start, start);
        timeline.makespan = std::max(timeline.makespan, start + length);
        moved = true;
      }
    }
  }
  timeline.makespan -= work > 0 ? first_start : 0;
  if (timeline.makespan > 0) timeline.bubble = 1 - work / (plan.device_count() * timeline.makespan);
  return timeline;
}

}  // namespace stagecoach
