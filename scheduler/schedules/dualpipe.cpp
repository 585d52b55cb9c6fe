#include <algorithm>

#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"
#include "scheduler/schedules/two_way_order.h"

namespace stagecoach {

namespace {

Result<Plan> make_dualpipe(const ScheduleParameters& p) {
  int stages = p.stages;
  if (stages % 2 != 0) return refuse_parameter("dualpipe", "stages", stages, "even");
  STAGECOACH_RETURN_IF_ERROR(
      check_range("dualpipe", "microbatches", p.micro_batches, 2 * stages, kNoMaximum));
  if (p.micro_batches % 2 != 0) {
    return refuse_parameter("dualpipe", "microbatches", p.micro_batches, "even");
  }
  STAGECOACH_ASSIGN_OR_RETURN(StageLayers layers, stage_layers("dualpipe", p, stages));
  std::vector<std::vector<StageWork>> work;
  for (int rank = 0; rank < stages; ++rank) {
    // Micro-batches of direction 0 enter at rank 0, the second half of them at the last rank.
    int first_direction = rank < stages / 2 ? 0 : 1;
    TwoWayRank self;
    self.depth = std::min(rank, stages - 1 - rank);
    self.ranks = stages / 2;
    self.per_way = p.micro_batches / 2;
    for (int way = 0; way < 2; ++way) {
      int direction = way == 0 ? first_direction : 1 - first_direction;
      self.stage[way] = direction == 0 ? rank : stages - 1 - rank;
      self.first_micro_batch[way] = direction * self.per_way;
    }
    work.push_back(two_way_order(self));
  }
  Plan plan = build_plan("dualpipe", p.micro_batches, layers, work);
  plan.weight_copies = 2;
  return plan;
}

}  // namespace

// DualPipe (DeepSeek-V3, arXiv 2412.19437): two directions at once over two copies of the weights,
// whose gradients are summed.
Schedule dualpipe_schedule() {
  Schedule schedule;
  schedule.name = "dualpipe";
  schedule.summary = "two directions at once over two weight copies, forwards overlap backwards";
  schedule.notation = OrderNotation::kDirections;
  schedule.parameters = {"iterations"};
  schedule.make = make_dualpipe;
  schedule.closed_form = [](const ScheduleParameters& p,
                            const StageTimes& t) -> std::optional<ClosedForm> {
    bool equal = t.forward_ns == t.weight_ns && t.input_ns == t.weight_ns && t.overlapped_ns == 0;
    if (!equal || p.iterations.value_or(1) != 1) return std::nullopt;
    // (N/2 - 1) (FB + B - 3W), FB being an overlapped pair.
    double turn = static_cast<double>(t.forward_ns + 2 * t.backward_ns - 3 * t.weight_ns);
    int turns = p.stages / 2 - 1;
    return idle_share(p, t, turns * turn, BubbleDefinition::kSpan);
  };
  return schedule;
}

}  // namespace stagecoach
