#include "scheduler/schedules/schedule_list.h"
#include "scheduler/schedules/zb_search.h"

namespace stagecoach {

// ZB-1p (arXiv 2401.10241): the order a search finds under the activations of 1F1B.
Schedule zb_1p_schedule() {
  Schedule schedule;
  schedule.name = "zb-1p";
  schedule.summary = "zero-bubble order found by search, activations up to N micro-batches";
  schedule.parameters = {"memory-limit", "iterations"};
  schedule.make = [](const ScheduleParameters& p) { return make_searched_plan("zb-1p", p, 1); };
  return schedule;
}

}  // namespace stagecoach
