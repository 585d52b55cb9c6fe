#include "scheduler/schedules/breadth_first.h"
#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"

namespace stagecoach {

namespace {

int looped_bfs_chunks(const ScheduleParameters& p) {
  return p.chunks.value_or(2);
}

}  // namespace

// Breadth-first pipeline (arXiv 2211.05953): a chunk's weights are needed once a pass, which suits
// sharded and offloaded weights; activations of all micro-batches are kept.
Schedule looped_bfs_schedule() {
  Schedule schedule;
  schedule.name = "looped-bfs";
  schedule.summary = "all micro-batches through one chunk after the other";
  schedule.trains = true;
  schedule.parameters = {"chunks", "iterations", "reverse-backward"};
  schedule.chunks = looped_bfs_chunks;
  schedule.make = [](const ScheduleParameters& p) -> Result<Plan> {
    int chunks = looped_bfs_chunks(p);
    STAGECOACH_RETURN_IF_ERROR(check_range("looped-bfs", "chunks", chunks, 1, 1024));
    STAGECOACH_ASSIGN_OR_RETURN(StageLayers layers,
                                stage_layers("looped-bfs", p, chunks * p.stages));
    return breadth_first_plan("looped-bfs", p.stages, p.micro_batches, layers,
                              p.reverse_backward.value_or(0) != 0);
  };
  schedule.closed_form = [](const ScheduleParameters& p,
                            const StageTimes&) -> std::optional<ClosedForm> {
    // With fewer micro-batches than devices a chunk waits for the loop to come round.
    if (p.micro_batches < p.stages || p.iterations.value_or(1) != 1) return std::nullopt;
    double fill = p.stages - 1;
    double slots = static_cast<double>(p.micro_batches) * looped_bfs_chunks(p);
    return ClosedForm{BubbleDefinition::kMakespan, fill / (slots + fill)};
  };
  return schedule;
}

}  // namespace stagecoach
