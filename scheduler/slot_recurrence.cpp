#include "scheduler/slot_recurrence.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace stagecoach {

MeasuredIterations measured_iterations(const StepSetup& setup) {
  if (setup.update == UpdateMode::kBarrier || setup.iterations == 1) return {1, -1};
  bool async = setup.update == UpdateMode::kAsync;
  int count = setup.iterations > 0 ? setup.iterations : async ? 5 : 3;
  return {count, async ? std::min(2, count - 2) : 0};
}

std::vector<bool> stages_that_fit(const CostTable& costs, const std::vector<Stage>& stages,
                                  const std::vector<PlannedDevice>& devices) {
  std::vector<bool> fits(stages.size() * devices.size(), true);
  std::vector<size_t> by_size(stages.size());
  std::iota(by_size.begin(), by_size.end(), size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(), [&](size_t left, size_t right) {
    return costs.bytes(stages[left]).total() < costs.bytes(stages[right]).total();
  });
  for (size_t device = 0; device < devices.size(); ++device) {
    if (devices[device].memory_bytes == 0) continue;
    StageBytes held;
    for (size_t stage : by_size) {
      StageBytes more = held;
      more.cover(costs.bytes(stages[stage]));
      bool fit = more.total() <= devices[device].memory_bytes;
      fits[stage * devices.size() + device] = fit;
      if (fit) held = more;
    }
  }
  return fits;
}

SlotRecurrence::SlotRecurrence(const StepSetup& setup, const CostTable& costs)
    : setup_(setup), costs_(costs) {}

void SlotRecurrence::prepare(const SlotPlan& plan) {
  size_t count = plan.stages.size();
  times_ns_.resize(count);
  gate_stage_.assign(count, -1);
  for (size_t s = 0; s < count; ++s) {
    times_ns_[s] = costs_.time_ns(plan.stages[s]);
  }
  // Backward reaches a stage's first layer last, so that layer's update is the last to be complete.
  size_t backward = count - 1;
  for (size_t s = 0; s < count && runs_forward(plan.stages[s].kind); ++s) {
    while (plan.stages[backward].last_layer < plan.stages[s].first_layer) --backward;
    gate_stage_[s] = static_cast<int>(backward);
  }
  for (std::vector<double>& ends : end_ns_) ends.assign(count, 0);
  free_ns_.assign(setup_.devices.size(), 0);
  slot_ = 0;
  if (plan.dispatch == SlotDispatch::kEarliestFinish) {
    fits_ = stages_that_fit(costs_, plan.stages, setup_.devices);
  }
}

double SlotRecurrence::end_on(int stage, int device, double gate_ns) const {
  double time = times_ns_[stage] / setup_.devices[device].speed;
  double hop = last_device_ == device || last_device_ < 0 ? 0 : setup_.hop_ns;
  double more = setup_.round_size() - 1;
  double start = std::max(free_ns_[device], gate_ns);
  double end = 0;
  for (const Line& line : lines_) {
    start = std::max(start, line.start_ns + hop);
    end = std::max(end, line.start_ns + hop + time + line.slope_ns * more);
  }
  return std::max(end, start + time * (more + 1));
}

int SlotRecurrence::device_for(const SlotPlan& plan, int stage, double gate_ns) const {
  int devices = setup_.device_count();
  if (plan.dispatch == SlotDispatch::kByStage) return plan.device_of_stage[stage];
  int next = static_cast<int>(slot_ % devices);
  if (plan.dispatch == SlotDispatch::kRotation) return next;
  int best = next;
  double best_end = std::numeric_limits<double>::infinity();
  for (int offset = 0; offset < devices; ++offset) {
    int device = (next + offset) % devices;
    if (!fits_[static_cast<size_t>(stage) * devices + device]) continue;
    double end = end_on(stage, device, gate_ns);
    // Of devices that would end together the one that has been free longest goes first.
    bool earlier = end < best_end || (end == best_end && free_ns_[device] < free_ns_[best]);
    if (!earlier) continue;
    best = device;
    best_end = end;
  }
  return best;
}

void SlotRecurrence::run_slot(int stage, int device, double gate_ns) {
  double time = times_ns_[stage] / setup_.devices[device].speed;
  double hop = last_device_ == device || last_device_ < 0 ? 0 : setup_.hop_ns;
  double more = setup_.round_size() - 1;
  double start = std::max(free_ns_[device], gate_ns);
  for (const Line& line : lines_) start = std::max(start, line.start_ns + hop);
  double end = start + time * (more + 1);
  // Where micro-batches arrive more slowly than they are served their arrival decides.
  size_t kept = 0;
  for (const Line& line : lines_) {
    if (line.slope_ns <= time) continue;
    double first = line.start_ns + hop + time;
    double last = first + line.slope_ns * more;
    if (last <= start + time * (more + 1)) continue;
    end = std::max(end, last);
    lines_[kept++] = {first, line.slope_ns};
  }
  lines_.resize(kept);
  lines_.push_back({start + time, time});
  free_ns_[device] = end;
  last_device_ = device;
}

double SlotRecurrence::run_iteration(const SlotPlan& plan, int iteration, SlotTimes* times) {
  int lag = setup_.update == UpdateMode::kAsync ? 2 : 1;
  std::vector<double>& ends = end_ns_[iteration % 3];
  const std::vector<double>& before = end_ns_[(iteration + 3 - lag) % 3];
  double last_end = 0;
  std::vector<double> now(plan.stages.size(), 0);
  for (int round = 0; round < setup_.rounds; ++round) {
    lines_.clear();
    last_device_ = -1;
    for (int stage = 0; stage < static_cast<int>(plan.stages.size()); ++stage, ++slot_) {
      bool gated = iteration >= lag && gate_stage_[stage] >= 0;
      double gate = gated ? before[gate_stage_[stage]] : 0;
      int device = device_for(plan, stage, gate);
      run_slot(stage, device, gate);
      now[stage] = std::max(now[stage], free_ns_[device]);
      last_end = std::max(last_end, free_ns_[device]);
      if (times == nullptr) continue;
      if (iteration == 0) times->devices.push_back(device);
      if (iteration > measured_iterations(setup_).from) {
        times->busy_ns[device] +=
            times_ns_[stage] * setup_.round_size() / setup_.devices[device].speed;
      }
    }
  }
  visited_ += static_cast<int64_t>(setup_.rounds) * static_cast<int64_t>(plan.stages.size());
  ends = std::move(now);
  return last_end;
}

double SlotRecurrence::run(const SlotPlan& plan, SlotTimes* times) {
  prepare(plan);
  if (times != nullptr) times->busy_ns.assign(setup_.devices.size(), 0);
  MeasuredIterations iterations = measured_iterations(setup_);
  double end = 0, from = 0;
  for (int iteration = 0; iteration < iterations.count; ++iteration) {
    end = std::max(end, run_iteration(plan, iteration, times));
    if (iteration == iterations.from) from = end;
    if (iteration == 0 && times != nullptr) times->makespan_ns = end;
  }
  return (end - from) / iterations.measured();
}

SlotTimes SlotRecurrence::times(const SlotPlan& plan) {
  SlotTimes times;
  times.step_ns = run(plan, &times);
  for (double& busy : times.busy_ns) busy /= measured_iterations(setup_).measured();
  return times;
}

}  // namespace stagecoach
