#include "scheduler/layer_timing.h"

#include <gtest/gtest.h>
#include <random>

namespace stagecoach {
namespace {

/// What FLOP would say: 1, 2, 3 … for the layers, whatever they take in truth.
std::vector<LayerProfile> by_flop(int layers) {
  std::vector<LayerProfile> profiles;
  for (int layer = 0; layer < layers; ++layer) {
    LayerProfile profile;
    profile.name = "layer " + std::to_string(layer);
    profile.forward_ns = profile.recompute_ns = 100 * (layer + 1);
    profile.early_stop_ns = 20;
    profile.backward_ns = 200 * (layer + 1);
    profile.update_ns = 50;
    profile.parameter_bytes = 4096;
    profiles.push_back(profile);
  }
  return profiles;
}

void add_times(LayerTiming& timing, int device, int layer, double speed, double forward_ns) {
  timing.add({device, layer, LayerPhase::kForward, forward_ns / speed});
  timing.add({device, layer, LayerPhase::kSavingForward, 1.1 * forward_ns / speed});
  timing.add({device, layer, LayerPhase::kEarlyStop, 0.9 * forward_ns / speed});
  timing.add({device, layer, LayerPhase::kBackward, 2.5 * forward_ns / speed});
}

// A rotation brings every layer to several devices: times and speeds follow from both at once, and
// what is an outlier in one iteration changes nothing.
TEST(LayerTiming, FindsLayerTimesAndSpeedsWhateverTheOutliers) {
  constexpr int kLayers = 7;
  std::mt19937_64 generator(3);
  for (int trial = 0; trial < 50; ++trial) {
    std::uniform_real_distribution<double> speed(0.2, 1), time(500, 5000), noise(0.99, 1.01);
    std::vector<double> speeds = {1, speed(generator), speed(generator)}, times;
    for (int layer = 0; layer < kLayers; ++layer) times.push_back(time(generator));
    LayerTiming timing(kLayers, 3);
    EXPECT_TRUE(timing.is_empty());
    for (int pass = 0; pass < 9; ++pass) {
      for (int layer = 0; layer < kLayers; ++layer) {
        int device = (layer + pass) % 3;
        bool disturbed = pass == 4;
        add_times(timing, device, layer, speeds[device],
                  times[layer] * noise(generator) * (disturbed ? 7 : 1));
      }
    }
    MeasuredRun run = timing.measured(by_flop(kLayers), std::vector<PlannedDevice>(3));
    for (int device = 0; device < 3; ++device) {
      EXPECT_NEAR(run.devices[device].speed, speeds[device], 0.03) << "trial " << trial;
    }
    for (int layer = 0; layer < kLayers; ++layer) {
      const LayerProfile& profile = run.layers[layer];
      EXPECT_NEAR(profile.forward_ns / times[layer], 1, 0.03);
      EXPECT_NEAR(profile.recompute_ns / times[layer], 1.1, 0.03);
      EXPECT_NEAR(profile.early_stop_ns / times[layer], 0.2, 0.05);
      EXPECT_NEAR(profile.backward_ns / times[layer], 2.5, 0.08);
      EXPECT_EQ(profile.parameter_bytes, 4096);
    }
  }
}

// The fused stage never runs a plain forward, and a device may run nothing at all.
TEST(LayerTiming, FillsWhatWasNotMeasuredInProportion) {
  LayerTiming timing(2, 2);
  timing.add({0, 0, LayerPhase::kForward, 300});
  timing.add({0, 0, LayerPhase::kBackward, 600});
  std::vector<PlannedDevice> hints(2);
  hints[1].speed = 0.25;
  MeasuredRun run = timing.measured(by_flop(2), hints);
  EXPECT_DOUBLE_EQ(run.layers[0].forward_ns, 300);
  EXPECT_DOUBLE_EQ(run.layers[0].recompute_ns, 300);
  EXPECT_DOUBLE_EQ(run.layers[0].early_stop_ns, 60);
  EXPECT_DOUBLE_EQ(run.layers[1].forward_ns, 600);
  EXPECT_DOUBLE_EQ(run.layers[1].backward_ns, 1200);
  EXPECT_DOUBLE_EQ(run.devices[0].speed, 1);
  EXPECT_DOUBLE_EQ(run.devices[1].speed, 0.25);
}

TEST(LayerTiming, HalvesOfABackwardAreAWhole) {
  LayerTiming timing(1, 1);
  timing.add({0, 0, LayerPhase::kInput, 150});
  timing.add({0, 0, LayerPhase::kWeight, 90});
  MeasuredRun run = timing.measured(by_flop(1), std::vector<PlannedDevice>(1));
  EXPECT_DOUBLE_EQ(run.layers[0].backward_ns, 240);
}

TEST(LayerTiming, MeasuresLinksAndUpdates) {
  LayerTiming timing(2, 2);
  add_times(timing, 0, 0, 1, 100);
  timing.add_link(0, true, {1000, 500});
  timing.add_link(0, true, {3000, 500});
  timing.add_link(0, false, {100, 400});
  for (double update : {10.0, 5000.0, 200.0}) timing.add_update(update);
  MeasuredRun run = timing.measured(by_flop(2), std::vector<PlannedDevice>(2));
  EXPECT_DOUBLE_EQ(run.devices[0].up_bytes_per_ns, 4);
  EXPECT_DOUBLE_EQ(run.devices[0].down_bytes_per_ns, 0.25);
  EXPECT_DOUBLE_EQ(run.devices[1].up_bytes_per_ns, 0);
  EXPECT_DOUBLE_EQ(run.layers[0].update_ns + run.layers[1].update_ns, 200);
  timing.clear();
  EXPECT_TRUE(timing.is_empty());
}

}  // namespace
}  // namespace stagecoach
