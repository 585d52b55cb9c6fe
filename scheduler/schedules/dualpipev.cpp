#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"
#include "scheduler/schedules/two_way_order.h"
#include "scheduler/schedules/v_placement.h"

namespace stagecoach {

namespace {

Result<Plan> make_dualpipev(const ScheduleParameters& p) {
  STAGECOACH_RETURN_IF_ERROR(
      check_range("dualpipev", "microbatches", p.micro_batches, 2 * p.stages, kNoMaximum));
  STAGECOACH_ASSIGN_OR_RETURN(StageLayers layers, stage_layers("dualpipev", p, 2 * p.stages));
  std::vector<std::vector<StageWork>> work;
  for (int rank = 0; rank < p.stages; ++rank) {
    TwoWayRank self;
    self.depth = rank;
    self.ranks = p.stages;
    self.per_way = p.micro_batches;
    for (int chunk = 0; chunk < 2; ++chunk) self.stage[chunk] = v_stage(p.stages, rank, chunk);
    work.push_back(two_way_order(self));
  }
  return build_plan("dualpipev", p.micro_batches, layers, work);
}

}  // namespace

// DualPipeV ("cut in half", from the authors of DualPipe): the two ways are the two chunks of a V
// placement, so weights exist once.
Schedule dualpipev_schedule() {
  Schedule schedule;
  schedule.name = "dualpipev";
  schedule.summary = "DualPipe over two folded chunks, weights once";
  schedule.parameters = {"iterations"};
  schedule.chunks = two_chunks;
  schedule.make = make_dualpipev;
  schedule.closed_form = [](const ScheduleParameters& p,
                            const StageTimes& t) -> std::optional<ClosedForm> {
    bool equal = t.forward_ns == t.weight_ns && t.input_ns == t.weight_ns && t.overlapped_ns == 0;
    if (!equal || p.iterations.value_or(1) != 1) return std::nullopt;
    // (N - 1) (FB + B - 3W) in chunk times, which are half of a stage's.
    double turn = static_cast<double>(t.forward_ns + 2 * t.backward_ns - 3 * t.weight_ns) / 2;
    return idle_share(p, t, (p.stages - 1) * turn, BubbleDefinition::kSpan);
  };
  return schedule;
}

}  // namespace stagecoach
