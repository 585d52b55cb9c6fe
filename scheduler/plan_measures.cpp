#include "scheduler/plan_measures.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace stagecoach {

std::string_view bubble_definition_name(BubbleDefinition definition) {
  return definition == BubbleDefinition::kMakespan ? "makespan" : "span";
}

namespace {

/// First start and last end of one device, and its work: slots count once however many actions
/// share them.
struct DeviceTimes {
  int64_t start_ns = std::numeric_limits<int64_t>::max();
  int64_t end_ns = std::numeric_limits<int64_t>::min();
  int64_t work_ns = 0;
};

DeviceTimes device_times(const Plan& plan, const PlanTimeline& timeline, int device) {
  DeviceTimes times;
  for (int index : timeline.order[device]) {
    const PlanTimeline::Interval& interval = timeline.actions[device][index];
    times.start_ns = std::min(times.start_ns, interval.start_ns);
    times.end_ns = std::max(times.end_ns, interval.end_ns);
    if (!plan.device_actions[device][index].with_next) {
      times.work_ns += interval.end_ns - interval.start_ns;
    }
  }
  return times;
}

int64_t stage_bytes(const Stage& stage, const std::vector<int64_t>& layer_bytes) {
  int64_t bytes = 0;
  for (int layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    bytes += layer_bytes[layer];
  }
  return bytes;
}

/// Bytes an action adds at its start and returns at its end.
struct MemoryChange {
  int64_t taken = 0;
  int64_t freed = 0;
};

MemoryChange memory_change(const Plan& plan, const Stage& stage, int64_t bytes,
                           double freed_at_input) {
  if (plan.residence == Residence::kStreamed) {
    return stage.kind == ActionKind::kForward ? MemoryChange{} : MemoryChange{bytes, bytes};
  }
  int64_t first_half = std::llround(freed_at_input * static_cast<double>(bytes));
  switch (stage.kind) {
    case ActionKind::kForward:
      return {bytes, 0};
    case ActionKind::kBackward:
      return {0, bytes};
    case ActionKind::kForwardBackward:
      return {bytes, bytes};
    case ActionKind::kInputGradient:
      return {0, first_half};
    case ActionKind::kWeightGradient:
      return {0, bytes - first_half};
  }
  return {};
}

}  // namespace

TimelineMeasures measure_timeline(const Plan& plan, const PlanTimeline& timeline) {
  TimelineMeasures measures;
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = std::numeric_limits<int64_t>::min();
  std::vector<DeviceTimes> devices;
  for (int device = 0; device < plan.device_count(); ++device) {
    DeviceTimes times = device_times(plan, timeline, device);
    devices.push_back(times);
    measures.work_by_device_ns.push_back(times.work_ns);
    measures.work_ns += times.work_ns;
    if (timeline.order[device].empty()) continue;
    first = std::min(first, times.start_ns);
    last = std::max(last, times.end_ns);
    measures.span_ns = std::max(measures.span_ns, times.end_ns - times.start_ns);
  }
  if (last <= first) return measures;
  measures.makespan_ns = last - first;
  double work = static_cast<double>(measures.work_ns) / plan.device_count();
  measures.bubble_makespan = 1 - work / static_cast<double>(measures.makespan_ns);
  measures.bubble_span = 1 - work / static_cast<double>(measures.span_ns);
  for (size_t device = 0; device < devices.size(); ++device) {
    const DeviceTimes& times = devices[device];
    if (timeline.order[device].empty()) {
      measures.idle.fill_ns += measures.makespan_ns;
      continue;
    }
    measures.idle.fill_ns += times.start_ns - first;
    measures.idle.steady_ns += times.end_ns - times.start_ns - times.work_ns;
    measures.idle.drain_ns += last - times.end_ns;
  }
  return measures;
}

ActivationUse activation_use(const Plan& plan, const PlanTimeline& timeline,
                             const std::vector<int64_t>& layer_bytes, double freed_at_input) {
  ActivationUse use;
  use.peak_bytes.resize(plan.device_actions.size(), 0);
  use.samples.resize(plan.device_actions.size());
  for (int device = 0; device < plan.device_count(); ++device) {
    int64_t bytes = 0;
    int64_t freed = 0;  // by actions of the slot that is running
    for (int index : timeline.order[device]) {
      const Action& action = plan.device_actions[device][index];
      const PlanTimeline::Interval& interval = timeline.actions[device][index];
      const Stage& stage = plan.stage_of(action);
      MemoryChange change =
          memory_change(plan, stage, stage_bytes(stage, layer_bytes), freed_at_input);
      if (change.taken != 0) {
        bytes += change.taken;
        use.samples[device].push_back({interval.start_ns, bytes});
        use.peak_bytes[device] = std::max(use.peak_bytes[device], bytes);
      }
      freed += change.freed;
      if (action.with_next || freed == 0) continue;
      bytes -= freed;
      freed = 0;
      use.samples[device].push_back({interval.end_ns, bytes});
    }
  }
  return use;
}

std::vector<double> peak_activations(const Plan& plan, const PlanTimeline& timeline,
                                     double freed_at_input) {
  constexpr int64_t kLayerBytes = int64_t{1} << 20;
  int layers = plan.layer_count();
  ActivationUse use =
      activation_use(plan, timeline, std::vector<int64_t>(layers, kLayerBytes), freed_at_input);
  std::vector<double> peaks;
  for (int64_t bytes : use.peak_bytes) {
    peaks.push_back(static_cast<double>(bytes) * plan.device_count() /
                    (static_cast<double>(kLayerBytes) * layers));
  }
  return peaks;
}

}  // namespace stagecoach
