#include "scheduler/plan_simulation.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <fmt/format.h>
#include <limits>
#include <numeric>
#include <utility>

namespace stagecoach {

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

/// What both ways of running share: the flow, when devices are free, and the timeline so far.
class Simulation {
 public:
  Simulation(const Plan& plan, int layer_count, const ActionDuration& duration,
             const HopTime& hop_time)
      : plan_(plan),
        duration_(duration),
        flow_(plan, layer_count, hop_time),
        free_ns_(plan.device_actions.size(), 0) {
    timeline_.actions.resize(plan.device_actions.size());
    timeline_.order.resize(plan.device_actions.size());
    for (int device = 0; device < plan.device_count(); ++device) {
      timeline_.actions[device].resize(plan.device_actions[device].size());
    }
  }

  const Action& action(int device, int index) const { return plan_.device_actions[device][index]; }
  int64_t free_ns(int device) const { return free_ns_[device]; }
  int64_t ready_ns(int device, int index) const {
    return flow_.ready_ns(device, action(device, index));
  }

  /// Runs `count` actions from `index` in one slot that starts once the device is free.
  void run(int device, int index, int count, int64_t ready_ns) {
    int64_t start = std::max(ready_ns, free_ns_[device]);
    int64_t end = start;
    for (int i = index; i < index + count; ++i) end += duration_(device, i);
    for (int i = index; i < index + count; ++i) {
      flow_.finish(device, action(device, i), end);
      timeline_.actions[device][i] = {start, end};
      timeline_.order[device].push_back(i);
    }
    free_ns_[device] = end;
  }

  PlanTimeline take() { return std::move(timeline_); }

 private:
  const Plan& plan_;
  const ActionDuration& duration_;
  PlanFlow flow_;
  std::vector<int64_t> free_ns_;
  PlanTimeline timeline_;
};

/// Runs what the front of the device's list allows; returns whether anything ran. In list order
/// times follow from the inputs alone, so devices may be visited in any order.
bool run_front(const Plan& plan, Simulation& simulation, int device, size_t& next) {
  const std::vector<Action>& actions = plan.device_actions[device];
  bool moved = false;
  while (next < actions.size()) {
    int count = 1;
    while (actions[next + count - 1].with_next && next + count < actions.size()) ++count;
    int64_t ready = 0;
    for (int i = 0; i < count && ready != PlanFlow::kUnknown; ++i) {
      int64_t input = simulation.ready_ns(device, static_cast<int>(next) + i);
      ready = input == PlanFlow::kUnknown ? input : std::max(ready, input);
    }
    if (ready == PlanFlow::kUnknown) break;
    simulation.run(device, static_cast<int>(next), count, ready);
    next += count;
    moved = true;
  }
  return moved;
}

/// A device whose order a gate decides. Both passes keep the order of micro-batches, so gradients
/// are summed in it and the bound on drift holds even if messages overtake each other.
class GatedDevice {
 public:
  GatedDevice(const Plan& plan, int device) : device_(device) {
    const std::vector<Action>& actions = plan.device_actions[device];
    limit_ = plan.in_flight_limit[device];
    backward_of_.resize(plan.micro_batches, -1);
    for (size_t index = 0; index < actions.size(); ++index) {
      if (runs_forward(plan.stage_of(actions[index]).kind)) {
        forwards_.push_back(static_cast<int>(index));
      } else {
        backward_of_[actions[index].micro_batch] = static_cast<int>(index);
      }
    }
  }

  struct Choice {
    int64_t start_ns = kNever;
    int index = -1;
    bool forward = false;
  };

  /// What this device would start next if nothing more arrived before then.
  Choice choose(const Simulation& simulation) const {
    int64_t forward_ready = kNever;
    if (next_ < forwards_.size() && static_cast<int>(in_flight_.size()) < limit_) {
      int64_t ready = simulation.ready_ns(device_, forwards_[next_]);
      if (ready != PlanFlow::kUnknown) forward_ready = ready;
    }
    int64_t backward_ready = kNever;
    if (!in_flight_.empty()) {
      int64_t ready = simulation.ready_ns(device_, in_flight_.front());
      if (ready != PlanFlow::kUnknown) backward_ready = ready;
    }
    int64_t earliest = std::min(forward_ready, backward_ready);
    if (earliest == kNever) return {};
    int64_t start = std::max(earliest, simulation.free_ns(device_));
    if (backward_ready <= start) return {start, in_flight_.front(), false};
    return {start, forwards_[next_], true};
  }

  void run(Simulation& simulation, const Choice& choice) {
    simulation.run(device_, choice.index, 1, choice.start_ns);
    if (choice.forward) {
      in_flight_.push_back(backward_of_[simulation.action(device_, choice.index).micro_batch]);
      ++next_;
    } else {
      in_flight_.pop_front();
    }
  }

 private:
  int device_;
  int limit_ = 0;
  size_t next_ = 0;
  std::vector<int> forwards_;
  std::vector<int> backward_of_;  ///< per micro-batch
  std::deque<int> in_flight_;     ///< backwards whose forward has run, oldest first
};

/// Always runs the earliest start of all devices: nothing that is still unknown can then arrive
/// before it, because everything takes at least 1 ns.
void run_gated(const Plan& plan, Simulation& simulation) {
  std::vector<GatedDevice> devices;
  for (int device = 0; device < plan.device_count(); ++device) devices.emplace_back(plan, device);
  while (true) {
    GatedDevice* first = nullptr;
    GatedDevice::Choice best;
    for (GatedDevice& device : devices) {
      GatedDevice::Choice choice = device.choose(simulation);
      if (choice.start_ns >= best.start_ns) continue;
      best = choice;
      first = &device;
    }
    if (first == nullptr) return;
    first->run(simulation, best);
  }
}

}  // namespace

PlanTimeline simulate_plan(const Plan& plan, int layer_count, const ActionDuration& duration,
                           const HopTime& hop_time) {
  Simulation simulation(plan, layer_count, duration, hop_time);
  if (plan.admission == Admission::kGate) {
    run_gated(plan, simulation);
    return simulation.take();
  }
  std::vector<size_t> next(plan.device_actions.size(), 0);
  bool moved = true;
  while (moved) {
    moved = false;
    for (int device = 0; device < plan.device_count(); ++device) {
      if (run_front(plan, simulation, device, next[device])) moved = true;
    }
  }
  return simulation.take();
}

Status check_stage_times(const StageTimes& times) {
  const std::pair<const char*, int64_t> positive[] = {{"forward", times.forward_ns},
                                                      {"backward", times.backward_ns},
                                                      {"input-gradient", times.input_ns},
                                                      {"weight-gradient", times.weight_ns}};
  for (const auto& [name, time_ns] : positive) {
    if (time_ns > 0) continue;
    return invalid_argument(
        fmt::format("{} time is {} ns; it must be at least 1 ns", name, time_ns));
  }
  if (times.overlapped_ns < 0 || times.hop_ns < 0) {
    return invalid_argument(fmt::format("{} time is negative; it must be at least 0 ns",
                                        times.hop_ns < 0 ? "hop" : "overlapped"));
  }
  return Status::ok();
}

namespace {

/// Time of action `index` of a list by its stage's times.
int64_t action_ns(const Plan& plan, const std::vector<Action>& actions, int index,
                  const StageTimes& times) {
  // A pair's time is charged to its first action.
  if (times.overlapped_ns > 0) {
    if (actions[index].with_next) return times.overlapped_ns;
    if (index > 0 && actions[index - 1].with_next) return 0;
  }
  switch (plan.stage_of(actions[index]).kind) {
    case ActionKind::kForward:
      return times.forward_ns;
    case ActionKind::kBackward:
    case ActionKind::kForwardBackward:
      return times.backward_ns;
    case ActionKind::kInputGradient:
      return times.input_ns;
    case ActionKind::kWeightGradient:
      return times.weight_ns;
  }
  return 0;
}

}  // namespace

ActionDuration uniform_durations(const Plan& plan, const StageTimes& times, int chunks) {
  return [&plan, times, chunks](int device, int index) {
    return action_ns(plan, plan.device_actions[device], index, times) / chunks;
  };
}

ActionDuration stage_durations(const Plan& plan, const std::vector<StageTimes>& times) {
  return [&plan, times, numbers = stage_numbers(plan)](int device, int index) {
    const std::vector<Action>& actions = plan.device_actions[device];
    return action_ns(plan, actions, index, times[numbers[actions[index].stage]]);
  };
}

ActionDuration at_speeds(ActionDuration duration, std::vector<double> speeds) {
  return [duration = std::move(duration), speeds = std::move(speeds)](int device, int index) {
    int64_t time_ns = duration(device, index);
    double slower = static_cast<double>(time_ns) / speeds[device];
    return time_ns == 0 ? 0 : std::max<int64_t>(1, std::llround(slower));
  };
}

HopTime uniform_hops(int64_t hop_ns) {
  return [hop_ns](int, int, int) { return hop_ns; };
}

}  // namespace stagecoach
