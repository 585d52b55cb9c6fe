#include "scheduler/schedules/warmup_order.h"

#include <algorithm>

namespace stagecoach {

int warmup_forwards(int stages, int rank, int slack) {
  int distance = stages - 1 - rank;
  return distance + std::min(slack, distance);
}

std::vector<StageWork> warmup_order(int stage, int micro_batches, int warmup) {
  std::vector<StageWork> work;
  int ahead = std::min(warmup, micro_batches);
  for (int m = 0; m < ahead; ++m) work.push_back({ActionKind::kForward, stage, m});
  for (int m = 0; m < micro_batches; ++m) {
    if (m + ahead < micro_batches) work.push_back({ActionKind::kForward, stage, m + ahead});
    work.push_back({ActionKind::kBackward, stage, m});
  }
  return work;
}

Plan warmup_plan(std::string schedule, int micro_batches, const StageLayers& layers, int slack) {
  int stages = static_cast<int>(layers.size());
  std::vector<std::vector<StageWork>> work;
  for (int rank = 0; rank < stages; ++rank) {
    work.push_back(warmup_order(rank, micro_batches, warmup_forwards(stages, rank, slack)));
  }
  Plan plan = build_plan(std::move(schedule), micro_batches, layers, work);
  for (int rank = 0; rank < stages; ++rank) {
    plan.in_flight_limit.push_back(warmup_forwards(stages, rank, slack) + 1);
  }
  return plan;
}

}  // namespace stagecoach
