#include "scheduler/plan_flow.h"

#include <algorithm>

namespace stagecoach {

int required_version(const Plan& plan, int micro_batch) {
  switch (plan.version_rule) {
    case VersionRule::kFlush:
      return plan.window_of(micro_batch);
    case VersionRule::kDelayed:
      return std::max(0, plan.window_of(micro_batch) - 1);
    case VersionRule::kCurrent:
    case VersionRule::kStash:
      return 0;
  }
  return 0;
}

PlanFlow::PlanFlow(const Plan& plan, int layer_count, HopTime hop_time)
    : plan_(plan),
      layers_(layer_count),
      hop_time_(std::move(hop_time)),
      forward_(static_cast<size_t>(plan.micro_batches) * (layer_count + 1)),
      gradient_(forward_.size()),
      input_half_(static_cast<size_t>(plan.micro_batches) * layer_count, kUnknown) {
  for (int m = 0; m < plan.micro_batches; ++m) {
    // The batch is everywhere from the start; a device of -1 costs no hop.
    forward_[boundary(0, m)] = Cell{0, -1};
  }
  int windows = plan.micro_batches == 0 ? 0 : plan.window_of(plan.micro_batches - 1) + 1;
  weights_.resize(static_cast<size_t>(windows) * layer_count);
  model_.resize(windows);
  for (int window = 0; window < windows; ++window) {
    int first = window * plan.window_size();
    int size = std::min(plan.window_size(), plan.micro_batches - first);
    model_[window].open = static_cast<int64_t>(size) * layer_count;
    for (int layer = 0; layer < layer_count; ++layer) {
      weights_[at_layer(layer, window)].open = size;
    }
  }
}

int64_t PlanFlow::arrival_ns(const Cell& cell, int device, int micro_batch) const {
  if (cell.end_ns == kUnknown || cell.device == device || cell.device < 0 || !hop_time_) {
    return cell.end_ns;
  }
  return cell.end_ns + hop_time_(cell.device, device, micro_batch);
}

int64_t PlanFlow::input_ns(int device, const Stage& stage, int micro_batch) const {
  if (stage.kind == ActionKind::kWeightGradient) {
    int64_t latest = 0;
    for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
      int64_t end = input_half_[at_layer(layer, micro_batch)];
      if (end == kUnknown) return kUnknown;
      latest = std::max(latest, end);
    }
    return latest;
  }
  int64_t input =
      arrival_ns(forward_[boundary(stage.first_layer, micro_batch)], device, micro_batch);
  if (runs_forward(stage.kind) || input == kUnknown) return input;
  // Behind the last layer stands the loss: its gradient exists as soon as the output does.
  const std::vector<Cell>& source = stage.last_layer + 1 == layers_ ? forward_ : gradient_;
  int64_t gradient =
      arrival_ns(source[boundary(stage.last_layer + 1, micro_batch)], device, micro_batch);
  return gradient == kUnknown ? kUnknown : std::max(input, gradient);
}

int64_t PlanFlow::version_ns(const Stage& stage, int micro_batch) const {
  int version = required_version(plan_, micro_batch);
  if (version == 0 || !runs_forward(stage.kind)) return 0;
  if (plan_.update_scope == UpdateScope::kModel) {
    const Window& window = model_[version - 1];
    return window.open > 0 ? kUnknown : window.end_ns;
  }
  int64_t latest = 0;
  for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    const Window& window = weights_[at_layer(layer, version - 1)];
    if (window.open > 0) return kUnknown;
    latest = std::max(latest, window.end_ns);
  }
  return latest;
}

int64_t PlanFlow::ready_ns(int device, const Action& action) const {
  const Stage& stage = plan_.stage_of(action);
  int64_t input = input_ns(device, stage, action.micro_batch);
  if (input == kUnknown) return kUnknown;
  int64_t version = version_ns(stage, action.micro_batch);
  return version == kUnknown ? kUnknown : std::max(input, version);
}

PlanFlow::Missing PlanFlow::missing(int device, const Action& action) const {
  const Stage& stage = plan_.stage_of(action);
  if (input_ns(device, stage, action.micro_batch) == kUnknown) return Missing::kInput;
  if (version_ns(stage, action.micro_batch) == kUnknown) return Missing::kVersion;
  return Missing::kNothing;
}

void PlanFlow::finish(int device, const Action& action, int64_t end_ns) {
  const Stage& stage = plan_.stage_of(action);
  int m = action.micro_batch;
  if (makes_input_gradient(stage.kind)) {
    gradient_[boundary(stage.first_layer, m)] = Cell{end_ns, device};
  }
  for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    if (runs_forward(stage.kind)) forward_[boundary(layer + 1, m)] = Cell{end_ns, device};
    if (stage.kind == ActionKind::kInputGradient) input_half_[at_layer(layer, m)] = end_ns;
    if (makes_weight_gradient(stage.kind)) {
      int index = plan_.window_of(m);
      for (Window* window : {&weights_[at_layer(layer, index)], &model_[index]}) {
        --window->open;
        window->end_ns = std::max(window->end_ns, end_ns);
      }
    }
  }
}

}  // namespace stagecoach
