#include "scheduler/schedules/breadth_first.h"

#include <vector>

namespace stagecoach {

Plan breadth_first_plan(std::string schedule, int devices, int micro_batches,
                        const StageLayers& layers, bool reverse_backward) {
  int stage_count = static_cast<int>(layers.size());
  std::vector<std::vector<StageWork>> work(devices);
  for (int stage = 0; stage < stage_count; ++stage) {
    for (int m = 0; m < micro_batches; ++m) {
      work[stage % devices].push_back({ActionKind::kForward, stage, m});
    }
  }
  for (int stage = stage_count - 1; stage >= 0; --stage) {
    for (int m = 0; m < micro_batches; ++m) {
      int micro_batch = reverse_backward ? micro_batches - 1 - m : m;
      work[stage % devices].push_back({ActionKind::kBackward, stage, micro_batch});
    }
  }
  return build_plan(std::move(schedule), micro_batches, layers, work);
}

}  // namespace stagecoach
