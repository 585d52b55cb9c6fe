#include "scheduler/slot_plan.h"

#include <gtest/gtest.h>

#include "scheduler/plan_validation.h"
#include "scheduler/schedules/roundpipe.h"

namespace stagecoach {
namespace {

TEST(SlotPlan, RotatingSlotsAreTheRoundpipePlan) {
  SlotPlan slots;
  slots.stages = equal_slots(3, 5);
  for (int devices = 1; devices <= 4; ++devices) {
    for (int rounds : {1, 2}) {
      std::vector<int> device_of_slot;
      for (size_t slot = 0; slot < slots.stages.size() * static_cast<size_t>(rounds); ++slot) {
        device_of_slot.push_back(static_cast<int>(slot) % devices);
      }
      EXPECT_EQ(make_slot_plan(slots, device_of_slot, devices, 6, rounds),
                make_roundpipe_plan(slots.stages, devices, 6, rounds, 0, Dispatch::kRotation));
    }
  }
}

TEST(SlotPlan, AnyPlaceOfSlotsIsAValidPlan) {
  SlotPlan slots;
  slots.stages = equal_slots(2, 3);
  Plan plan = make_slot_plan(slots, {1, 1, 0, 2, 0}, 4, 3, 1);
  EXPECT_TRUE(validate_plan(plan, plan.layer_count(), false).is_ok());
  EXPECT_EQ(plan.device_actions[1].size(), 6u);
  EXPECT_TRUE(plan.device_actions[3].empty());
}

}  // namespace
}  // namespace stagecoach
