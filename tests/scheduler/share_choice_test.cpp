#include "scheduler/share_choice.h"

#include <gtest/gtest.h>

#include "model/model_source.h"
#include "scheduler/device_planner.h"
#include "scheduler/network_profile.h"

namespace stagecoach {
namespace {

struct Machine {
  double flop_per_s, host_bytes_per_s, link_bytes_per_ns;
};
/// GPT-2 medium in 142 ms a step of 16 x 1024 tokens with `async`, updates in 106 ms, 50 GB/s.
constexpr Machine kH200{330e12, 87e9, 50};

/// What is chosen for GPT-2 medium in bf16.
ShareChoice choose(const Machine& machine, UpdateMode update, bool gated) {
  Result<ShapeSource> source = resolve_shape("gpt2-medium");
  EXPECT_TRUE(source.is_ok());
  Result<Network> network = make_network(*source->model, NetworkHead::kLoss, DType::kBF16, 1024);
  EXPECT_TRUE(network.is_ok());
  StepSetup setup;
  setup.layers =
      profile_network(*network, {4, 1024}, {machine.flop_per_s, machine.host_bytes_per_s});
  PlannedDevice device;
  device.up_bytes_per_ns = device.down_bytes_per_ns = machine.link_bytes_per_ns;
  setup.devices = {device};
  setup.micro_batches = 4;
  setup.update = update;
  setup.gated = gated;
  Result<DevicePlan> plan = plan_for_devices(setup);
  EXPECT_TRUE(plan.is_ok());
  auto parameters = static_cast<double>(network->trained_parameter_count());
  UpdateTraffic traffic{28 * parameters, 2 * parameters, 14 * parameters, 12 * parameters};
  return choose_device_share(setup, plan->planned.slots, traffic);
}

// Half of the updates on the card made 61,754 tokens/s of 91,771 (docs/performance.md).
TEST(DeviceShareChoice, OnAnH200TheHostMakesAllUpdates) {
  for (UpdateMode update : {UpdateMode::kBarrier, UpdateMode::kOverlap, UpdateMode::kAsync}) {
    for (bool gated : {false, true}) {
      ShareChoice choice = choose(kH200, update, gated);
      EXPECT_EQ(choice.share, 0) << update_mode_name(update) << gated;
      EXPECT_EQ(choice.step_ns, choice.host_only_ns);
    }
  }
}

TEST(DeviceShareChoice, ASlowHostSharesAndAFasterOneLess) {
  for (UpdateMode update : {UpdateMode::kBarrier, UpdateMode::kOverlap, UpdateMode::kAsync}) {
    Machine slow = kH200, slower = kH200;
    slow.host_bytes_per_s = 20e9;
    slower.host_bytes_per_s = 5e9;
    ShareChoice some = choose(slow, update, true), more = choose(slower, update, true);
    EXPECT_GT(some.share, 0) << update_mode_name(update);
    EXPECT_LE(some.step_ns, 0.9 * some.host_only_ns);
    EXPECT_GT(more.share, some.share);
    EXPECT_LT(more.step_ns / more.host_only_ns, some.step_ns / some.host_only_ns);
    // Neither side waits long for the other.
    EXPECT_LE(more.device_updates_ns, 1.5 * more.host_updates_ns);
  }
}

TEST(DeviceShareChoice, ALinkOfUnknownRateIsNotUsed) {
  EXPECT_EQ(choose({330e12, 5e9, 0}, UpdateMode::kOverlap, true).share, 0);
}

}  // namespace
}  // namespace stagecoach
