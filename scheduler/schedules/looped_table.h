#pragma once

#include <string_view>
#include <vector>

#include "core/status.h"
#include "scheduler/schedules/schedule.h"

namespace stagecoach {

/// Depth-first order of V chunks a device (Megatron's interleaved schedule, arXiv 2104.04473):
/// groups of G micro-batches pass through chunk 0, then chunk 1, …; the next group follows. Entry k
/// is a device's k-th forward; its k-th backward is the same with the chunks reversed.
struct LoopedTable {
  struct Entry {
    int micro_batch = 0;
    int chunk = 0;
  };
  int stages = 1;
  int chunks = 1;
  std::vector<Entry> entries;

  int size() const { return static_cast<int>(entries.size()); }
  StageWork forward(int rank, int k) const;
  /// B or one of its halves, on what the k-th backward works on.
  StageWork backward(int rank, int k, ActionKind kind) const;
};

/// The table for `parameters`, `chunks` and G (default N). With several chunks refuses what the
/// order cannot do: N <= G <= M, and a last group of M mod G must be 0 or at least N.
Result<LoopedTable> looped_table(std::string_view schedule, const ScheduleParameters& parameters,
                                 int chunks);

/// The group size the table uses.
int looped_group(const ScheduleParameters& parameters);

}  // namespace stagecoach
