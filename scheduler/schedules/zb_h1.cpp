#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"
#include "scheduler/schedules/split_order.h"

namespace stagecoach {

namespace {

int zb_h1_chunks(const ScheduleParameters& p) {
  return p.chunks.value_or(1);
}

Result<Plan> make_zb_h1(const ScheduleParameters& p) {
  int chunks = zb_h1_chunks(p);
  STAGECOACH_RETURN_IF_ERROR(check_range("zb-h1", "chunks", chunks, 1, 1024));
  STAGECOACH_ASSIGN_OR_RETURN(LoopedTable table, looped_table("zb-h1", p, chunks));
  STAGECOACH_ASSIGN_OR_RETURN(StageLayers layers, stage_layers("zb-h1", p, chunks * p.stages));
  int turn = (chunks - 1) * looped_group(p);
  std::vector<std::vector<StageWork>> work;
  for (int rank = 0; rank < p.stages; ++rank) {
    work.push_back(split_order(table, rank, turn + p.stages - 1 - rank, turn + p.stages - 1));
  }
  return build_plan("zb-h1", p.micro_batches, layers, work);
}

}  // namespace

// ZB-H1 (arXiv 2401.10241): backward in halves; weight gradients fill the waits of 1F1B without
// holding more activations than its first rank. Several chunks give the interleaved form.
Schedule zb_h1_schedule() {
  Schedule schedule;
  schedule.name = "zb-h1";
  schedule.summary = "1F1B with weight gradients in its waits, activations as 1F1B";
  schedule.trains = true;
  schedule.parameters = {"chunks", "group", "iterations"};
  schedule.chunks = zb_h1_chunks;
  schedule.make = make_zb_h1;
  schedule.closed_form = [](const ScheduleParameters& p,
                            const StageTimes& t) -> std::optional<ClosedForm> {
    bool holds = zb_h1_chunks(p) == 1 && p.micro_batches >= p.stages && t.weight_ns <= t.input_ns &&
                 p.iterations.value_or(1) == 1;
    if (!holds) return std::nullopt;
    double idle = static_cast<double>(t.forward_ns + t.input_ns - t.weight_ns) * (p.stages - 1);
    return idle_share(p, t, idle, BubbleDefinition::kSpan);
  };
  return schedule;
}

}  // namespace stagecoach
