#include "scheduler/device_slots.h"

namespace stagecoach {

std::vector<Slot> slots_of_device(const Plan& plan, int device, int first_turn) {
  bool bound = plan.residence == Residence::kBound;
  std::vector<int> numbers = stage_numbers(plan);
  std::vector<bool> is_uploaded(plan.stages.size(), false);  // of bound stages, by number
  std::vector<Slot> slots;
  const std::vector<Action>& actions = plan.device_actions[static_cast<size_t>(device)];
  for (size_t index = 0; index < actions.size(); ++index) {
    int stage = actions[index].stage;
    int round = plan.round_of(actions[index].micro_batch);
    if (slots.empty() || slots.back().stage != stage || slots.back().round != round) {
      Slot slot{stage, round, static_cast<int>(index), 0, 0, true};
      if (bound) {
        slot.buffer = numbers[static_cast<size_t>(stage)];
        slot.uploads = !is_uploaded[static_cast<size_t>(slot.buffer)];
        is_uploaded[static_cast<size_t>(slot.buffer)] = true;
      } else {
        slot.buffer = (first_turn + static_cast<int>(slots.size())) % 2;
      }
      slots.push_back(slot);
    }
    ++slots.back().action_count;
  }
  return slots;
}

}  // namespace stagecoach
