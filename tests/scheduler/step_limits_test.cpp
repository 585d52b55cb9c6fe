#include "scheduler/step_limits.h"

#include <gtest/gtest.h>

#include "tests/scheduler/planner_fixture.h"

namespace stagecoach {
namespace {

/// Pairs of devices behind uplinks of one link's rate, and host memory of half of all links'.
void add_limits(StepSetup& setup) {
  double up = setup.devices[0].up_bytes_per_ns, down = setup.devices[0].down_bytes_per_ns;
  for (int device = 0; device < setup.device_count(); ++device) {
    setup.devices[device].uplink = device / 2;
    if (device % 2 == 0) setup.uplinks.push_back({"pair", up, down});
  }
  setup.host_bytes_per_ns = (up + down) * setup.device_count() / 2;
}

TEST(StepLimits, SearchesAreAloneAndTogether) {
  StepSetup setup = setup_of({layer_of(1, 2)}, 3, 3, 1, UpdateMode::kOverlap);
  for (PlannedDevice& device : setup.devices) {
    device.up_bytes_per_ns = 8;
    device.down_bytes_per_ns = 4;
  }
  add_limits(setup);
  setup.host_bytes_per_ns = 36;
  EXPECT_TRUE(has_shared_limits(setup));
  std::vector<StepSetup> setups = setups_without_limits(setup);
  ASSERT_EQ(setups.size(), 2u);
  for (const StepSetup& one : setups) EXPECT_FALSE(has_shared_limits(one));
  EXPECT_EQ(setups[0].devices[0].up_bytes_per_ns, 8);
  // Half of the uplink; the third device has one alone and a sixth of the host's memory.
  EXPECT_EQ(setups[1].devices[0].up_bytes_per_ns, 4);
  EXPECT_EQ(setups[1].devices[1].down_bytes_per_ns, 2);
  EXPECT_EQ(setups[1].devices[2].up_bytes_per_ns, 6);
  EXPECT_EQ(setups[1].devices[2].down_bytes_per_ns, 4);
}

TEST(StepLimits, PlansAreNoSlowerThanRoundPipesRuleUnderThem) {
  std::mt19937_64 generator(21);
  for (int trial = 0; trial < random_models(60); ++trial) {
    StepSetup setup = random_setup(generator, 4 + static_cast<int>(generator() % 20));
    add_bytes(setup, generator, 0);
    StepSetup free = setup;
    add_limits(setup);
    Result<PlannedStages> planned = plan_stages(setup), rule = plan_by_roundpipe_rule(setup);
    ASSERT_TRUE(planned.is_ok()) << planned.status().message();
    ASSERT_TRUE(rule.is_ok()) << rule.status().message();
    EXPECT_LE(planned->prediction.step_ns, rule->prediction.step_ns) << "trial " << trial;
    // Limits delay, but for who happens to come first at a copy engine.
    CostTable costs(setup.layers);
    StepPrediction without = predict_step(free, costs, planned->slots);
    EXPECT_GE(planned->prediction.makespan_ns, without.makespan_ns * 0.99) << "trial " << trial;
  }
}

}  // namespace
}  // namespace stagecoach
