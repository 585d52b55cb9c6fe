#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"
#include "scheduler/schedules/split_order.h"

namespace stagecoach {

namespace {

Result<Plan> make_zb_h2(const ScheduleParameters& p) {
  STAGECOACH_ASSIGN_OR_RETURN(LoopedTable table, looped_table("zb-h2", p, 1));
  STAGECOACH_ASSIGN_OR_RETURN(StageLayers layers, stage_layers("zb-h2", p, p.stages));
  std::vector<std::vector<StageWork>> work;
  for (int rank = 0; rank < p.stages; ++rank) {
    work.push_back(split_order(table, rank, 2 * (p.stages - 1 - rank), 2 * (p.stages - 1)));
  }
  return build_plan("zb-h2", p.micro_batches, layers, work);
}

}  // namespace

// ZB-H2 (arXiv 2401.10241): twice the warm-up of ZB-H1, so that no rank waits between its first and
// its last action. Ranks end staggered: the gain is real only if updates do not synchronise them.
Schedule zb_h2_schedule() {
  Schedule schedule;
  schedule.name = "zb-h2";
  schedule.summary = "no waits within a rank, for twice the activations of 1F1B";
  schedule.parameters = {"iterations"};
  schedule.make = make_zb_h2;
  schedule.closed_form = [](const ScheduleParameters& p,
                            const StageTimes& t) -> std::optional<ClosedForm> {
    double wait = static_cast<double>(t.forward_ns + t.input_ns - 2 * t.weight_ns);
    bool holds = p.micro_batches >= 2 * p.stages - 1 && t.weight_ns <= t.input_ns && wait >= 0 &&
                 p.iterations.value_or(1) == 1;
    if (!holds) return std::nullopt;
    return idle_share(p, t, wait * (p.stages - 1), BubbleDefinition::kSpan);
  };
  return schedule;
}

}  // namespace stagecoach
