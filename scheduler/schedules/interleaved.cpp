#include <algorithm>

#include "scheduler/schedules/looped_table.h"
#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"

namespace stagecoach {

namespace {

int interleaved_chunks(const ScheduleParameters& p) {
  return p.chunks.value_or(2);
}

/// One forward, one backward in turn over the table. A rank runs two forwards more for each rank
/// behind it, because the chunks' loop comes back through all of them.
std::vector<StageWork> interleaved_order(const LoopedTable& table, int rank, int group) {
  std::vector<StageWork> work;
  int warmup = std::min(table.size(), 2 * (table.stages - 1 - rank) + (table.chunks - 1) * group);
  for (int k = 0; k < warmup; ++k) work.push_back(table.forward(rank, k));
  for (int k = 0; k < table.size(); ++k) {
    if (warmup + k < table.size()) work.push_back(table.forward(rank, warmup + k));
    work.push_back(table.backward(rank, k, ActionKind::kBackward));
  }
  return work;
}

Result<Plan> make_interleaved(const ScheduleParameters& p) {
  int chunks = interleaved_chunks(p);
  STAGECOACH_RETURN_IF_ERROR(check_range("interleaved", "chunks", chunks, 1, 1024));
  STAGECOACH_ASSIGN_OR_RETURN(LoopedTable table, looped_table("interleaved", p, chunks));
  STAGECOACH_ASSIGN_OR_RETURN(StageLayers layers,
                              stage_layers("interleaved", p, chunks * p.stages));
  std::vector<std::vector<StageWork>> work;
  for (int rank = 0; rank < p.stages; ++rank) {
    work.push_back(interleaved_order(table, rank, looped_group(p)));
  }
  return build_plan("interleaved", p.micro_batches, layers, work);
}

}  // namespace

// Interleaved 1F1B (Megatron-LM, arXiv 2104.04473): V chunks a device make the pipeline V times as
// short to fill, for V times the hand-overs.
Schedule interleaved_schedule() {
  Schedule schedule;
  schedule.name = "interleaved";
  schedule.summary = "1F1B over several chunks a device, depth first";
  schedule.trains = true;
  schedule.parameters = {"chunks", "group", "iterations"};
  schedule.chunks = interleaved_chunks;
  schedule.make = make_interleaved;
  schedule.closed_form = [](const ScheduleParameters& p, const StageTimes&) {
    return looped_bubble(p, interleaved_chunks(p));
  };
  return schedule;
}

}  // namespace stagecoach
