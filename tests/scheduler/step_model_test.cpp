#include "scheduler/step_model.h"

#include <cmath>
#include <gtest/gtest.h>

#include "scheduler/stage_packing.h"
#include "tests/scheduler/planner_fixture.h"

namespace stagecoach {
namespace {

/// Any partition: each layer starts a stage with a chance.
std::vector<Stage> random_stages(std::mt19937_64& generator, int layers) {
  StageCuts cuts;
  cuts.fused = static_cast<int>(generator() % layers);
  for (std::vector<int>* list : {&cuts.forward, &cuts.backward}) {
    for (int layer = 0; layer < cuts.fused; ++layer) {
      if (layer == 0 || generator() % 3 == 0) list->push_back(layer);
    }
  }
  return stages_of(cuts, layers);
}

TEST(StepModel, EqualsEventSimulationWhereTransfersAreFree) {
  std::mt19937_64 generator(11);
  for (int trial = 0; trial < 300; ++trial) {
    StepSetup setup = random_setup(generator, 1 + static_cast<int>(generator() % 30));
    CostTable costs(setup.layers);
    SlotPlan plan;
    plan.stages = random_stages(generator, costs.layer_count());
    std::vector<double> ends = simulated_ends_ns(setup, plan.stages);
    double step = mean_step_ns(setup, ends);
    SlotTimes fast = SlotRecurrence(setup, costs).times(plan);
    StepPrediction full = predict_step(setup, costs, plan);
    EXPECT_NEAR(fast.makespan_ns / ends[0], 1, 1e-6) << "trial " << trial;
    EXPECT_NEAR(fast.step_ns / step, 1, 1e-6) << "trial " << trial;
    EXPECT_NEAR(full.makespan_ns / ends[0], 1, 1e-6) << "trial " << trial;
    EXPECT_NEAR(full.step_ns / step, 1, 1e-6) << "trial " << trial;
    EXPECT_EQ(fast.devices, full.devices);
    EXPECT_GE(step * (1 + 1e-9), step_lower_bound_ns(setup, costs, plan.stages))
        << "trial " << trial;
    double work = 0;
    for (double busy : full.compute_ns) work += busy;
    EXPECT_NEAR(full.bubble, 1 - work / (setup.device_count() * step), 1e-6);
  }
}

/// A step whose transfers are all known: two equal layers fused, one device.
TEST(StepModel, OneSlotByHand) {
  StepSetup setup = setup_of({layer_of(100, 200)}, 1, 3, 1, UpdateMode::kBarrier);
  LayerProfile& layer = setup.layers[0];
  layer.parameter_bytes = 1000;
  layer.gradient_bytes = 500;
  layer.update_ns = 70;
  setup.devices[0].up_bytes_per_ns = 10;
  setup.devices[0].down_bytes_per_ns = 5;
  CostTable costs(setup.layers);
  SlotPlan plan{{{ActionKind::kForwardBackward, 0, 0}}, SlotDispatch::kRotation, {}};
  StepPrediction step = predict_step(setup, costs, plan);
  // Up 100, three times 300, down 100, update 70.
  EXPECT_NEAR(step.makespan_ns, 900, 1e-9);
  EXPECT_NEAR(step.step_ns, 1170, 1e-9);
  EXPECT_NEAR(step.update_exposed_ns, 170, 1e-9);
  EXPECT_NEAR(step.lane(StepLane::kCompute), 900.0 / 1170, 1e-9);
  EXPECT_NEAR(step.lane(StepLane::kParametersUp), 100.0 / 1170, 1e-9);
  EXPECT_NEAR(step.lane(StepLane::kHostUpdate), 70.0 / 1170, 1e-9);
  EXPECT_EQ(step.bottleneck(), "compute");
}

TEST(StepModel, NamesWhatBoundsAStep) {
  std::vector<LayerProfile> layers(12, layer_of(1000, 2000));
  for (LayerProfile& layer : layers) layer.parameter_bytes = layer.gradient_bytes = 1 << 20;
  StepSetup setup = setup_of(layers, 2, 4, 1, UpdateMode::kOverlap);
  for (PlannedDevice& device : setup.devices) {
    device.up_bytes_per_ns = 20;
    device.down_bytes_per_ns = 40;
  }
  Result<PlannedStages> planned = plan_stages(setup);
  ASSERT_TRUE(planned.is_ok());
  EXPECT_EQ(planned->prediction.bottleneck(), "link up");
  for (LayerProfile& layer : setup.layers) layer.update_ns = 200'000;
  planned = plan_stages(setup);
  EXPECT_EQ(planned->prediction.bottleneck(), "host update");
  EXPECT_GE(planned->prediction.step_ns, 12 * 200'000);
}

TEST(StepModel, TransfersAndUpdatesOnlyDelay) {
  std::mt19937_64 generator(5);
  for (int trial = 0; trial < 200; ++trial) {
    StepSetup setup = random_setup(generator, 2 + static_cast<int>(generator() % 20));
    add_bytes(setup, generator, 0);
    CostTable costs(setup.layers);
    SlotPlan plan;
    plan.stages = random_stages(generator, costs.layer_count());
    StepPrediction full = predict_step(setup, costs, plan);
    SlotTimes fast = SlotRecurrence(setup, costs).times(plan);
    EXPECT_GE(full.makespan_ns, fast.makespan_ns * (1 - 1e-9)) << "trial " << trial;
    EXPECT_GE(full.step_ns, fast.step_ns * 0.98) << "trial " << trial;
    for (double fraction : full.busy_fraction) EXPECT_LE(fraction, 1 + 1e-9);
    // A faster link is never worse for the first iteration.
    for (PlannedDevice& device : setup.devices) {
      device.up_bytes_per_ns *= 4;
      device.down_bytes_per_ns *= 4;
    }
    EXPECT_LE(predict_step(setup, costs, plan).makespan_ns, full.makespan_ns * (1 + 1e-9));
  }
}

/// Two devices, each a slot of one layer that is bound by its parameters.
StepSetup two_uploads() {
  StepSetup setup =
      setup_of(std::vector<LayerProfile>(2, layer_of(100, 200)), 2, 1, 1, UpdateMode::kBarrier);
  for (LayerProfile& layer : setup.layers) layer.parameter_bytes = 10'000;
  for (PlannedDevice& device : setup.devices) {
    device.up_bytes_per_ns = device.down_bytes_per_ns = 10;
  }
  return setup;
}
const SlotPlan kForwardAndFused{{{ActionKind::kForward, 0, 0},
                                 {ActionKind::kForwardBackward, 1, 1},
                                 {ActionKind::kBackward, 0, 0}},
                                SlotDispatch::kRotation,
                                {}};

TEST(StepModel, UplinksAndHostMemoryAreShared) {
  StepSetup setup = two_uploads();
  CostTable costs(setup.layers);
  // Both parameters go up from 0 to 1000; forward 100, fused 300; backward's follow from 1000.
  EXPECT_NEAR(predict_step(setup, costs, kForwardAndFused).step_ns, 2300, 1);
  // One uplink of one link's rate: the second device's parameters wait for the first's.
  StepSetup shared = setup;
  shared.uplinks = {{"pair", 10, 10}};
  shared.devices[0].uplink = shared.devices[1].uplink = 0;
  StepPrediction pair = predict_step(shared, costs, kForwardAndFused);
  EXPECT_NEAR(pair.step_ns, 3300, 2);
  EXPECT_NEAR(pair.lane(StepLane::kUplinksUp), 3000.0 / 3300, 0.01);
  EXPECT_EQ(pair.bottleneck(), "uplinks up");
  // Uplinks of their own change nothing, nor does one that is wide enough.
  shared.uplinks = {{"first", 10, 10}, {"second", 10, 10}};
  shared.devices[1].uplink = 1;
  EXPECT_NEAR(predict_step(shared, costs, kForwardAndFused).step_ns, 2300, 1);
  shared.uplinks = {{"pair", 20, 20}};
  shared.devices[1].uplink = 0;
  EXPECT_NEAR(predict_step(shared, costs, kForwardAndFused).step_ns, 2300, 1);
  // Host memory is shared by all of them.
  setup.host_bytes_per_ns = 10;
  StepPrediction host = predict_step(setup, costs, kForwardAndFused);
  EXPECT_NEAR(host.step_ns, 3300, 2);
  EXPECT_EQ(host.bottleneck(), "host memory");
}

TEST(StepModel, UpdatesPassThroughHostMemory) {
  StepSetup setup = setup_of({layer_of(100, 200)}, 1, 1, 1, UpdateMode::kBarrier);
  setup.layers[0].update_ns = 100;
  setup.layers[0].update_bytes = 1000;
  setup.host_bytes_per_ns = 5;
  SlotPlan plan{{{ActionKind::kForwardBackward, 0, 0}}, SlotDispatch::kRotation, {}};
  EXPECT_NEAR(predict_step(setup, CostTable(setup.layers), plan).step_ns, 500, 1);
}

// One device, one fused layer, two rounds of one micro-batch: 100 up, 300 computing, 50 down.
TEST(StepModel, GradientsThatAreSummedOnTheDeviceGoUpAgain) {
  StepSetup setup = setup_of({layer_of(100, 200)}, 1, 2, 2, UpdateMode::kBarrier);
  setup.layers[0].parameter_bytes = 1000;
  setup.layers[0].gradient_bytes = 5000;
  setup.devices[0].up_bytes_per_ns = setup.devices[0].down_bytes_per_ns = 10;
  CostTable costs(setup.layers);
  SlotPlan plan{{{ActionKind::kForwardBackward, 0, 0}}, SlotDispatch::kRotation, {}};
  EXPECT_NEAR(predict_step(setup, costs, plan).step_ns, 100 + 300 + 300 + 500 + 200, 1e-6);
  setup.bulk.gradients_summed_on_device = true;
  // The second round waits for 1000 + 5000 bytes, asked for as the first one starts.
  EXPECT_NEAR(predict_step(setup, costs, plan).step_ns, 100 + 600 + 300 + 500, 1e-6);
}

TEST(StepModel, TimelineIsWhatWasComputed) {
  std::mt19937_64 generator(8);
  StepSetup setup = random_setup(generator, 12);
  add_bytes(setup, generator, 0);
  CostTable costs(setup.layers);
  SlotPlan plan;
  plan.stages = random_stages(generator, costs.layer_count());
  std::vector<ComputedInterval> timeline;
  StepPrediction step = predict_step(setup, costs, plan, &timeline);
  MeasuredIterations iterations = measured_iterations(setup);
  ASSERT_EQ(timeline.size(), plan.stages.size() * setup.micro_batches * iterations.count);
  std::vector<double> free(setup.devices.size(), 0);
  double first = timeline[0].start_ns, last = 0;
  for (const ComputedInterval& slot : timeline) {
    EXPECT_GE(slot.start_ns, free[slot.device] - 1e-6);
    free[slot.device] = slot.end_ns;
    first = std::min(first, slot.start_ns);
    if (slot.iteration == 0) last = std::max(last, slot.end_ns);
  }
  EXPECT_NEAR(step.makespan_ns, last - first, 1e-6 * last);
}

TEST(StepModel, EarliestFinishIsTheRotationOnEqualDevices) {
  for (int devices = 1; devices <= 8; ++devices) {
    for (int micro_batches = devices; micro_batches <= devices + 4; ++micro_batches) {
      // All slots equally long: three forwards of a layer are one backward of it.
      std::vector<LayerProfile> layers(13, layer_of(100, 200));
      StepSetup setup = setup_of(layers, devices, 2 * micro_batches, 2, UpdateMode::kOverlap);
      CostTable costs(setup.layers);
      MemoryReach reach(costs, 0, 1, 0);
      SlotPlan plan;
      plan.stages = pack_stages(costs, {{300, &reach}});
      ASSERT_EQ(plan.stages.size(), 17u);
      StepPrediction rotation = predict_step(setup, costs, plan);
      plan.dispatch = SlotDispatch::kEarliestFinish;
      EXPECT_EQ(predict_step(setup, costs, plan).devices, rotation.devices);
      EXPECT_EQ(SlotRecurrence(setup, costs).times(plan).devices, rotation.devices);
    }
  }
}

}  // namespace
}  // namespace stagecoach
