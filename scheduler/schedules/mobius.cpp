#include "scheduler/schedules/breadth_first.h"
#include "scheduler/schedules/schedule_checks.h"
#include "scheduler/schedules/schedule_list.h"

namespace stagecoach {

namespace {

int mobius_chunks(const ScheduleParameters& p) {
  return p.chunks.value_or(2);
}

}  // namespace

// Mobius (ASPLOS 2023): a looped breadth-first pipeline whose stages are streamed from host memory,
// a device loading its next stage while it computes with this one; activations wait on the host and
// backward recomputes.
Schedule mobius_schedule() {
  Schedule schedule;
  schedule.name = "mobius";
  schedule.summary = "looped breadth-first over stages streamed from host memory";
  schedule.parameters = {"chunks", "iterations"};
  schedule.chunks = mobius_chunks;
  schedule.make = [](const ScheduleParameters& p) -> Result<Plan> {
    int chunks = mobius_chunks(p);
    STAGECOACH_RETURN_IF_ERROR(check_range("mobius", "chunks", chunks, 1, 1024));
    STAGECOACH_ASSIGN_OR_RETURN(StageLayers layers, stage_layers("mobius", p, chunks * p.stages));
    Plan plan = breadth_first_plan("mobius", p.stages, p.micro_batches, layers, false);
    plan.residence = Residence::kStreamed;
    return plan;
  };
  schedule.closed_form = [](const ScheduleParameters& p,
                            const StageTimes&) -> std::optional<ClosedForm> {
    if (p.micro_batches < p.stages || p.iterations.value_or(1) != 1) return std::nullopt;
    // N (N - 1) / (M S + N (N - 1)) with S = V N model stages.
    double n = p.stages;
    double slots = static_cast<double>(p.micro_batches) * mobius_chunks(p) * n;
    return ClosedForm{BubbleDefinition::kMakespan, n * (n - 1) / (slots + n * (n - 1))};
  };
  return schedule;
}

}  // namespace stagecoach
