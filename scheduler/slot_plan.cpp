#include "scheduler/slot_plan.h"

#include "core/check.h"

namespace stagecoach {

Plan make_slot_plan(const SlotPlan& slots, const std::vector<int>& device_of_slot, int devices,
                    int micro_batches, int rounds) {
  STAGECOACH_CHECK(device_of_slot.size() == slots.stages.size() * static_cast<size_t>(rounds));
  Plan plan;
  plan.schedule = devices == 1 ? "single" : "roundpipe";
  plan.micro_batches = micro_batches;
  plan.rounds = rounds;
  plan.stages = slots.stages;
  plan.device_actions.resize(static_cast<size_t>(devices));
  auto stage_count = static_cast<int>(plan.stages.size());
  int round_size = micro_batches / rounds;
  for (int slot = 0; slot < stage_count * rounds; ++slot) {
    auto& actions = plan.device_actions[static_cast<size_t>(device_of_slot[slot])];
    int first = slot / stage_count * round_size;
    for (int m = first; m < first + round_size; ++m) {
      actions.push_back(Action{slot % stage_count, m});
    }
  }
  return plan;
}

}  // namespace stagecoach
