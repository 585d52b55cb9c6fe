#include "scheduler/schedules/looped_table.h"

#include <algorithm>
#include <fmt/format.h>

#include "scheduler/schedules/schedule_checks.h"

namespace stagecoach {

StageWork LoopedTable::forward(int rank, int k) const {
  return {ActionKind::kForward, entries[k].chunk * stages + rank, entries[k].micro_batch};
}

StageWork LoopedTable::backward(int rank, int k, ActionKind kind) const {
  int chunk = chunks - 1 - entries[k].chunk;
  return {kind, chunk * stages + rank, entries[k].micro_batch};
}

int looped_group(const ScheduleParameters& parameters) {
  return parameters.group.value_or(parameters.stages);
}

Result<LoopedTable> looped_table(std::string_view schedule, const ScheduleParameters& parameters,
                                 int chunks) {
  int group = looped_group(parameters);
  int stages = parameters.stages, micro_batches = parameters.micro_batches;
  STAGECOACH_RETURN_IF_ERROR(check_range(schedule, "group", group, 1, kNoMaximum));
  if (chunks > 1) {
    STAGECOACH_RETURN_IF_ERROR(
        check_range(schedule, "microbatches", micro_batches, stages, kNoMaximum));
    STAGECOACH_RETURN_IF_ERROR(check_range(schedule, "group", group, stages, micro_batches));
    int rest = micro_batches % group;
    if (rest != 0 && rest < stages) {
      return refuse_parameter(schedule, "microbatches", micro_batches,
                              fmt::format("groups of {} with a last group of at least {} (stages); "
                                          "its last group has {}",
                                          group, stages, rest));
    }
  }
  LoopedTable table{stages, chunks, {}};
  for (int first = 0; first < micro_batches; first += group) {
    int end = std::min(first + group, micro_batches);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int m = first; m < end; ++m) table.entries.push_back({m, chunk});
    }
  }
  return table;
}

}  // namespace stagecoach
