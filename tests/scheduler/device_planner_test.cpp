#include "scheduler/device_planner.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

#include "scheduler/plan_fit.h"
#include "tests/scheduler/planner_fixture.h"

namespace stagecoach {
namespace {

constexpr ByteCount kGiB = ByteCount{1} << 30;

/// 36 blocks between a light embedding and a head of three blocks; a block takes 1 ms forward.
StepSetup model_on(const std::vector<double>& speeds, const std::vector<ByteCount>& memories = {}) {
  std::vector<LayerProfile> layers(38, layer_of(1e6, 2e6));
  layers.front() = layer_of(1e5, 2e5);
  layers.back() = layer_of(3e6, 6e6);
  for (LayerProfile& layer : layers) {
    layer.parameter_bytes = layer.gradient_bytes = kGiB / 4;
    layer.gradient_sum_bytes = kGiB / 2;
    layer.boundary_bytes = kGiB / 64;
    layer.saved_bytes = kGiB / 4;
  }
  StepSetup setup = setup_of(layers, static_cast<int>(speeds.size()), 16, 1, UpdateMode::kOverlap);
  for (size_t device = 0; device < speeds.size(); ++device) {
    setup.devices[device].speed = speeds[device];
    // Stages of a quarter of the model, so that no device can keep all of it.
    setup.devices[device].memory_bytes = memories.empty() ? 16 * kGiB : memories[device];
  }
  return setup;
}

double fastest_alone_ns(const StepSetup& setup) {
  double best = std::numeric_limits<double>::infinity();
  for (const PlannedDevice& device : setup.devices) {
    StepSetup alone = setup;
    alone.devices = {device};
    Result<PlannedStages> planned = plan_stages(alone);
    if (planned.is_ok()) best = std::min(best, planned->prediction.step_ns);
  }
  return best;
}

/// Throughput of the plan as a share of what all devices give together: that of the fastest alone,
/// by the sum of speeds.
double efficiency(const StepSetup& setup, const DevicePlan& plan) {
  double speeds = 0, fastest = 0;
  for (const PlannedDevice& device : setup.devices) {
    speeds += device.speed;
    fastest = std::max(fastest, device.speed);
  }
  return fastest_alone_ns(setup) * fastest / speeds / plan.planned.prediction.step_ns;
}

void expect_good(const StepSetup& setup) {
  Result<DevicePlan> plan = plan_for_devices(setup);
  ASSERT_TRUE(plan.is_ok()) << plan.status().to_string();
  EXPECT_GE(efficiency(setup, *plan), 0.9);
  testing::Test::RecordProperty("efficiency", std::to_string(efficiency(setup, *plan)));
  EXPECT_LE(plan->planned.prediction.step_ns, fastest_alone_ns(setup) * (1 + 1e-9));
  double shares = 0;
  for (const DeviceShare& share : plan->shares) {
    EXPECT_TRUE(share.used) << share.reason;
    shares += share.work;
  }
  EXPECT_NEAR(shares, 1, 1e-9);
  CostTable costs(setup.layers);
  StepSetup part = setup;
  part.devices.clear();
  for (int device : plan->devices) part.devices.push_back(setup.devices[device]);
  EXPECT_TRUE(plan_fits(part, costs, plan->planned.slots));
  // Any order of the devices gives the same step and the same share to each.
  std::vector<int> order(setup.devices.size());
  std::iota(order.begin(), order.end(), 0);
  while (std::next_permutation(order.begin(), order.end())) {
    StepSetup other = setup;
    for (size_t index = 0; index < order.size(); ++index) {
      other.devices[index] = setup.devices[order[index]];
    }
    Result<DevicePlan> again = plan_for_devices(other);
    ASSERT_TRUE(again.is_ok());
    EXPECT_EQ(again->planned.prediction.step_ns, plan->planned.prediction.step_ns);
    EXPECT_EQ(again->planned.slots.stages, plan->planned.slots.stages);
    std::vector<double> now, before;
    for (size_t index = 0; index < order.size(); ++index) {
      now.push_back(again->shares[index].work);
      before.push_back(plan->shares[order[index]].work);
    }
    std::sort(now.begin(), now.end());
    std::sort(before.begin(), before.end());
    EXPECT_EQ(now, before);
  }
}

TEST(DevicePlanner, HalfSpeed) {
  expect_good(model_on({1, 0.5}));
}

TEST(DevicePlanner, QuarterSpeed) {
  expect_good(model_on({1, 0.25}));
}

TEST(DevicePlanner, TwoFastOneHalf) {
  expect_good(model_on({1, 1, 0.5}));
}

TEST(DevicePlanner, UnequalMemory) {
  expect_good(model_on({1, 1}, {24 * kGiB, 8 * kGiB}));
  expect_good(model_on({1, 1}, {24 * kGiB, 3 * kGiB}));
}

TEST(DevicePlanner, SharesFollowSpeed) {
  StepSetup setup = model_on({0.5, 1});
  Result<DevicePlan> plan = plan_for_devices(setup);
  ASSERT_TRUE(plan.is_ok());
  EXPECT_EQ(plan->devices, (std::vector<int>{1, 0}));
  EXPECT_NEAR(plan->shares[0].work, 1.0 / 3, 0.05);
  EXPECT_NEAR(plan->shares[1].work, 2.0 / 3, 0.05);
}

TEST(DevicePlanner, HopelessDevicesAreLeftOutWithAReason) {
  StepSetup setup = model_on({1, 0.001, 1});
  Result<DevicePlan> plan = plan_for_devices(setup);
  ASSERT_TRUE(plan.is_ok());
  EXPECT_FALSE(plan->shares[1].used);
  EXPECT_FALSE(plan->shares[1].reason.empty());
  EXPECT_TRUE(plan->shares[0].used && plan->shares[2].used);

  setup = model_on({1, 1}, {24 * kGiB, kGiB / 8});
  plan = plan_for_devices(setup);
  ASSERT_TRUE(plan.is_ok());
  EXPECT_FALSE(plan->shares[1].used);
  EXPECT_NE(plan->shares[1].reason, "");
  EXPECT_NEAR(plan->shares[0].work, 1, 1e-12);

  setup = model_on({1, 1}, {kGiB / 8, kGiB / 8});
  EXPECT_EQ(plan_for_devices(setup).status().code(), StatusCode::kResourceExhausted);
}

TEST(DevicePlanner, NeverSlowerThanTheFastestAloneWithRandomDevices) {
  std::mt19937_64 generator(31);
  std::uniform_real_distribution<double> speed(0.05, 1);
  double sum = 0;
  constexpr int kTrials = random_models(40);
  for (int trial = 0; trial < kTrials; ++trial) {
    StepSetup setup = random_setup(generator, 20 + static_cast<int>(generator() % 20));
    setup.devices.resize(2 + generator() % 3);
    for (PlannedDevice& device : setup.devices) device.speed = speed(generator);
    Result<DevicePlan> plan = plan_for_devices(setup);
    ASSERT_TRUE(plan.is_ok());
    EXPECT_LE(plan->planned.prediction.step_ns, fastest_alone_ns(setup) * (1 + 1e-9))
        << "trial " << trial;
    sum += efficiency(setup, *plan);
  }
  RecordProperty("mean_efficiency", std::to_string(sum / kTrials));
}

TEST(DevicePlanner, NeverSlowerThanAnyDeviceAloneWhateverItsLink) {
  std::mt19937_64 generator(32);
  std::uniform_real_distribution<double> speed(0.05, 1), digits(-5, 2);
  for (int trial = 0; trial < random_models(60); ++trial) {
    StepSetup setup = random_setup(generator, 4 + static_cast<int>(generator() % 12));
    add_bytes(setup, generator, 0);
    setup.devices.resize(2 + generator() % 3);
    for (PlannedDevice& device : setup.devices) {
      device.speed = speed(generator);
      device.up_bytes_per_ns = device.down_bytes_per_ns = std::pow(10, digits(generator));
    }
    Result<DevicePlan> plan = plan_for_devices(setup);
    ASSERT_TRUE(plan.is_ok());
    for (const PlannedDevice& device : setup.devices) {
      StepSetup alone = setup;
      alone.devices = {device};
      EXPECT_LE(plan->planned.prediction.step_ns,
                plan_for_devices(alone)->planned.prediction.step_ns * 1.08)
          << "trial " << trial << " " << device.speed << " " << device.up_bytes_per_ns;
    }
  }
}

TEST(DevicePlanner, EqualDevicesRotate) {
  Result<DevicePlan> plan = plan_for_devices(model_on({1, 1, 1, 1}));
  ASSERT_TRUE(plan.is_ok());
  EXPECT_EQ(plan->planned.slots.dispatch, SlotDispatch::kRotation);
  EXPECT_EQ(plan->devices, (std::vector<int>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace stagecoach
