#include "scheduler/schedules/schedule_list.h"
#include "scheduler/schedules/v_pattern.h"
#include "scheduler/schedules/v_placement.h"

namespace stagecoach {

namespace {

VPattern v_half_pattern(int stages, int rank) {
  int shift = stages % 2 == 0 ? 3 : 0;  // keeps the six slots of a period apart
  return {2 * rank, 3 * stages - rank - 2, 3 * stages + shift + 2 * rank - 1,
          6 * stages + shift - rank - 2};
}

}  // namespace

// V-Half (arXiv 2405.15362): about half the activations of 1F1B, about half its idle time.
Schedule v_half_schedule() {
  Schedule schedule;
  schedule.name = "v-half";
  schedule.summary = "two folded chunks a device, half the activations of 1F1B";
  schedule.parameters = {"iterations"};
  schedule.chunks = two_chunks;
  schedule.make = [](const ScheduleParameters& p) {
    return make_v_plan("v-half", p, v_half_pattern, (p.stages + 2) / 2);
  };
  return schedule;
}

}  // namespace stagecoach
