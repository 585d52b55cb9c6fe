#include "scheduler/schedules/roundpipe.h"

#include <algorithm>

#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"

namespace stagecoach {

Plan make_placed_plan(std::vector<Stage> stages, int devices, int micro_batches, int rounds,
                      const std::vector<int>& slot_devices) {
  Plan plan;
  plan.schedule = devices == 1 ? "single" : "roundpipe";
  plan.micro_batches = micro_batches;
  plan.rounds = rounds;
  plan.stages = std::move(stages);
  plan.device_actions.resize(devices);
  int stage_count = static_cast<int>(plan.stages.size());
  int round_size = micro_batches / rounds;
  for (int round = 0; round < rounds; ++round) {
    for (int stage = 0; stage < stage_count; ++stage) {
      int device = slot_devices[static_cast<size_t>(round) * stage_count + stage];
      for (int m = 0; m < round_size; ++m) {
        plan.device_actions[device].push_back(Action{stage, round * round_size + m});
      }
    }
  }
  return plan;
}

Plan make_roundpipe_plan(std::vector<Stage> stages, int devices, int micro_batches, int rounds,
                         int64_t first_slot, Dispatch dispatch) {
  int stage_count = static_cast<int>(stages.size());
  std::vector<int> slot_devices;
  for (int64_t slot = 0; slot < static_cast<int64_t>(rounds) * stage_count; ++slot) {
    int64_t device = dispatch == Dispatch::kRotation ? (first_slot + slot) % devices
                                                     : slot % stage_count * devices / stage_count;
    slot_devices.push_back(static_cast<int>(device));
  }
  return make_placed_plan(std::move(stages), devices, micro_batches, rounds, slot_devices);
}

std::vector<Stage> equal_slots(int forward_stages, int backward_stages) {
  if (forward_stages == 0) return {{ActionKind::kForwardBackward, 0, 0}};
  int backward_alone = backward_stages - 1;
  // As many layers as the finer cut has stages, so that every stage has at least one.
  int layers = std::max(forward_stages, backward_alone);
  auto cut = [layers](int stage, int count) {
    return static_cast<int>(static_cast<int64_t>(layers) * stage / count);
  };
  std::vector<Stage> stages;
  for (int stage = 0; stage < forward_stages; ++stage) {
    stages.push_back(
        {ActionKind::kForward, cut(stage, forward_stages), cut(stage + 1, forward_stages) - 1});
  }
  stages.push_back({ActionKind::kForwardBackward, layers, layers});
  for (int stage = backward_alone - 1; stage >= 0; --stage) {
    stages.push_back(
        {ActionKind::kBackward, cut(stage, backward_alone), cut(stage + 1, backward_alone) - 1});
  }
  return stages;
}

namespace {

/// What both schedules of streamed slots are made from.
struct Slots {
  int forward_stages = 0;
  int backward_stages = 1;
  int round = 1;  ///< M_R
};

Slots slots_of(const ScheduleParameters& p) {
  int forward = p.forward_stages.value_or(3);
  return {forward, p.backward_stages.value_or(forward + 1), p.round.value_or(p.micro_batches)};
}

Result<Plan> make_slots(std::string_view name, const ScheduleParameters& p) {
  Slots slots = slots_of(p);
  constexpr int kMostSlots = 4096;
  STAGECOACH_RETURN_IF_ERROR(
      check_range(name, "forward-stages", slots.forward_stages, 0, kMostSlots));
  // The fused stage takes the last layers; the others need a backward stage, and only they do.
  int least = slots.forward_stages == 0 ? 1 : 2;
  int most = slots.forward_stages == 0 ? 1 : kMostSlots;
  STAGECOACH_RETURN_IF_ERROR(
      check_range(name, "backward-stages", slots.backward_stages, least, most));
  STAGECOACH_RETURN_IF_ERROR(check_range(name, "round", slots.round, 1, p.micro_batches));
  if (p.micro_batches % slots.round != 0) {
    return refuse_parameter(name, "round", slots.round, "a divisor of microbatches");
  }
  int asynchronous = p.asynchronous.value_or(0);
  STAGECOACH_RETURN_IF_ERROR(check_range(name, "asynchronous", asynchronous, 0, 1));
  int iterations = p.iterations.value_or(1);
  Plan plan =
      make_roundpipe_plan(equal_slots(slots.forward_stages, slots.backward_stages), p.stages,
                          p.micro_batches * iterations, p.micro_batches / slots.round * iterations,
                          0, Dispatch::kRotation);
  plan.schedule = name;
  plan.accumulation = p.micro_batches;
  plan.version_rule = asynchronous != 0 ? VersionRule::kDelayed : VersionRule::kFlush;
  return plan;
}

/// N (N - 1) / (M S + N (N - 1)), with M over all iterations that follow without a flush. Exact
/// where a round has N micro-batches and at least N slots; longer rounds must divide evenly.
std::optional<ClosedForm> roundpipe_bubble(const ScheduleParameters& p, const StageTimes& t) {
  Slots slots = slots_of(p);
  int iterations = p.iterations.value_or(1);
  double slot_count = slots.forward_stages + slots.backward_stages;
  bool asynchronous = p.asynchronous.value_or(0) != 0;
  if (t.forward_ns != t.backward_ns || (iterations > 1 && !asynchronous)) return std::nullopt;
  if (slot_count < p.stages || slots.round < p.stages) return std::nullopt;
  int rounds = p.micro_batches / slots.round * iterations;
  bool even = rounds * (slots.forward_stages + slots.backward_stages) % p.stages == 0;
  if (slots.round != p.stages && !even) return std::nullopt;
  double n = p.stages;
  double work = static_cast<double>(p.micro_batches) * iterations * slot_count;
  return ClosedForm{BubbleDefinition::kMakespan, n * (n - 1) / (work + n * (n - 1))};
}

}  // namespace

// RoundPipe (arXiv 2604.27085), synchronous (an iteration computes with the result of the one
// before) or asynchronous (of the one before that, so that updates hide behind an iteration).
Schedule roundpipe_schedule() {
  Schedule schedule;
  schedule.name = "roundpipe";
  schedule.summary = "streamed stages rotate over the devices, forward and backward cut apart";
  schedule.trains = true;
  schedule.notation = OrderNotation::kSlots;
  schedule.parameters = {"round", "forward-stages", "backward-stages", "iterations",
                         "asynchronous"};
  schedule.make = [](const ScheduleParameters& p) { return make_slots("roundpipe", p); };
  schedule.closed_form = roundpipe_bubble;
  return schedule;
}

// One device that streams its stages: RoundPipe with N = 1.
Schedule single_schedule() {
  Schedule schedule;
  schedule.name = "single";
  schedule.summary = "one device, stages streamed from host memory";
  schedule.trains = true;
  schedule.notation = OrderNotation::kSlots;
  schedule.parameters = {"round", "forward-stages", "backward-stages", "iterations"};
  schedule.make = [](const ScheduleParameters& p) -> Result<Plan> {
    STAGECOACH_RETURN_IF_ERROR(check_range("single", "stages", p.stages, 1, 1));
    return make_slots("single", p);
  };
  schedule.closed_form = roundpipe_bubble;
  return schedule;
}

}  // namespace stagecoach
