#include "scheduler/schedules/schedule_list.h"
#include "scheduler/schedules/zb_search.h"

namespace stagecoach {

// ZB-2p (arXiv 2401.10241): the order a search finds under twice the activations of 1F1B.
Schedule zb_2p_schedule() {
  Schedule schedule;
  schedule.name = "zb-2p";
  schedule.summary = "zero-bubble order found by search, activations up to 2N micro-batches";
  schedule.parameters = {"memory-limit", "iterations"};
  schedule.make = [](const ScheduleParameters& p) { return make_searched_plan("zb-2p", p, 2); };
  return schedule;
}

}  // namespace stagecoach
