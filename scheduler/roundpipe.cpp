#include "scheduler/roundpipe.h"

namespace stagecoach {

Plan make_roundpipe_plan(std::vector<Stage> stages, int devices, int micro_batches, int rounds,
                         int64_t first_slot, Dispatch dispatch) {
  Plan plan;
  plan.schedule = devices == 1 ? "single" : "roundpipe";
  plan.micro_batches = micro_batches;
  plan.rounds = rounds;
  plan.stages = std::move(stages);
  plan.device_actions.resize(devices);
  int stage_count = static_cast<int>(plan.stages.size());
  int round_size = micro_batches / rounds;
  int64_t slot = first_slot;
  for (int round = 0; round < rounds; ++round) {
    for (int stage = 0; stage < stage_count; ++stage, ++slot) {
      int64_t device = dispatch == Dispatch::kRotation
                           ? slot % devices
                           : static_cast<int64_t>(stage) * devices / stage_count;
      for (int m = 0; m < round_size; ++m) {
        plan.device_actions[device].push_back(Action{stage, round * round_size + m});
      }
    }
  }
  return plan;
}

}  // namespace stagecoach
