#include "scheduler/schedules/schedule_list.h"
#include "scheduler/schedules/v_pattern.h"
#include "scheduler/schedules/v_placement.h"

namespace stagecoach {

namespace {

VPattern v_min_pattern(int stages, int rank) {
  int shift = stages % 3 == 0 ? 2 : 0;  // keeps the six slots of a period apart
  return {rank, 2 * stages - rank - 1, 2 * stages + shift + rank, 4 * stages + shift - rank - 1};
}

}  // namespace

// V-Min (arXiv 2405.15362): about a third of the activations of 1F1B, the least a V placement
// needs.
Schedule v_min_schedule() {
  Schedule schedule;
  schedule.name = "v-min";
  schedule.summary = "two folded chunks a device, a third of the activations of 1F1B";
  schedule.parameters = {"iterations"};
  schedule.chunks = two_chunks;
  schedule.make = [](const ScheduleParameters& p) {
    return make_v_plan("v-min", p, v_min_pattern, (p.stages + 4) / 3);
  };
  return schedule;
}

}  // namespace stagecoach
