#include "scheduler/stage_planner.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "scheduler/stage_packing.h"
#include "tests/scheduler/planner_fixture.h"

namespace stagecoach {
namespace {

/// Every way to cut layers [0, end), as first layers.
std::vector<std::vector<int>> all_cuts(int end) {
  std::vector<std::vector<int>> all;
  if (end == 0) return {{}};
  for (int mask = 0; mask < 1 << (end - 1); ++mask) {
    std::vector<int> firsts = {0};
    for (int layer = 1; layer < end; ++layer) {
      if (mask >> (layer - 1) & 1) firsts.push_back(layer);
    }
    all.push_back(firsts);
  }
  return all;
}

/// The least step time of all partitions.
double brute_force_ns(const StepSetup& setup) {
  CostTable costs(setup.layers);
  SlotRecurrence recurrence(setup, costs);
  double best = std::numeric_limits<double>::infinity();
  for (int fused = 0; fused < costs.layer_count(); ++fused) {
    std::vector<std::vector<int>> cuts = all_cuts(fused);
    for (const std::vector<int>& forward : cuts) {
      for (const std::vector<int>& backward : cuts) {
        SlotPlan plan;
        plan.stages = stages_of({forward, backward, fused}, costs.layer_count());
        if (step_lower_bound_ns(setup, costs, plan.stages) >= best) continue;
        best = std::min(best, recurrence.step_ns(plan));
      }
    }
  }
  return best;
}

TEST(SlowStagePlanner, WithinTwoPercentOfBruteForce) {
  std::mt19937_64 generator(20261129);
  double worst = 1, sum = 0;
  constexpr int kModels = 120;
  for (int trial = 0; trial < kModels; ++trial) {
    // A few of the largest: a model of 12 layers has 1.4 million partitions.
    int layers = trial % 20 == 0 ? 12 : trial % 20 == 1 ? 11 : 3 + trial % 8;
    StepSetup setup = random_setup(generator, layers);
    Result<PlannedStages> planned = plan_stages(setup);
    ASSERT_TRUE(planned.is_ok()) << planned.status().to_string();
    double ratio = planned->prediction.step_ns / brute_force_ns(setup);
    EXPECT_LE(ratio, 1.02) << "trial " << trial << ": " << layers << " layers on "
                           << setup.device_count() << ", M " << setup.micro_batches << " in "
                           << setup.rounds << ", " << update_mode_name(setup.update);
    worst = std::max(worst, ratio);
    sum += ratio;
  }
  RecordProperty("worst", std::to_string(worst));
  RecordProperty("mean", std::to_string(sum / kModels));
}

TEST(StagePlanner, NeverSlowerThanRoundPipesRuleInSimulation) {
  std::mt19937_64 generator(7);
  double gain = 0;
  constexpr int kModels = random_models(220);
  for (int trial = 0; trial < kModels; ++trial) {
    StepSetup setup = random_setup(generator, 13 + static_cast<int>(generator() % 60));
    Result<PlannedStages> planned = plan_stages(setup);
    Result<PlannedStages> rule = plan_by_roundpipe_rule(setup);
    ASSERT_TRUE(planned.is_ok() && rule.is_ok());
    double ours = mean_step_ns(setup, simulated_ends_ns(setup, planned->slots.stages));
    double theirs = mean_step_ns(setup, simulated_ends_ns(setup, rule->slots.stages));
    EXPECT_LE(ours, theirs * (1 + 1e-6)) << "trial " << trial;
    gain += 1 - ours / theirs;
  }
  RecordProperty("mean_gain", std::to_string(gain / kModels));
}

TEST(StagePlanner, NeverExceedsMemoryAndSaysWhenNothingFits) {
  std::mt19937_64 generator(99);
  int refused = 0;
  for (int trial = 0; trial < random_models(200); ++trial) {
    StepSetup setup = random_setup(generator, 2 + static_cast<int>(generator() % 40));
    ByteCount memory = ByteCount{20 + static_cast<ByteCount>(generator() % 400)} << 20;
    add_bytes(setup, generator, memory);
    Result<PlannedStages> planned = plan_stages(setup);
    CostTable costs(setup.layers);
    std::vector<Stage> single;
    StageCuts cuts;
    for (cuts.fused = 0; cuts.fused + 1 < costs.layer_count(); ++cuts.fused) {
      cuts.forward.push_back(cuts.fused);
      cuts.backward.push_back(cuts.fused);
    }
    bool possible = costs.bytes(stages_of(cuts, costs.layer_count())).total() <= memory;
    EXPECT_EQ(planned.is_ok(), possible) << "trial " << trial;
    if (!planned.is_ok()) {
      EXPECT_EQ(planned.status().code(), StatusCode::kResourceExhausted);
      ++refused;
      continue;
    }
    EXPECT_LE(costs.bytes(planned->slots.stages).total(), memory) << "trial " << trial;
    Plan plan = rotation_plan(setup, planned->slots.stages, 1);
    EXPECT_TRUE(validate_plan(plan, costs.layer_count(), false).is_ok());
    Result<PlannedStages> rule = plan_by_roundpipe_rule(setup);
    if (!rule.is_ok()) continue;
    EXPECT_LE(planned->prediction.step_ns, rule->prediction.step_ns * (1 + 1e-9));
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 100);
}

TEST(StagePlanner, IsDeterministicAndKeepsLayerLimits) {
  std::mt19937_64 generator(3);
  for (int trial = 0; trial < 20; ++trial) {
    StepSetup setup = random_setup(generator, 5 + static_cast<int>(generator() % 30));
    StageSearchOptions options;
    options.max_stage_layers = 1 + static_cast<int>(generator() % 4);
    Result<PlannedStages> first = plan_stages(setup, options), again = plan_stages(setup, options);
    ASSERT_TRUE(first.is_ok() && again.is_ok());
    EXPECT_EQ(first->slots.stages, again->slots.stages);
    for (const Stage& stage : first->slots.stages) {
      EXPECT_LE(stage.layer_count(), options.max_stage_layers);
    }
  }
}

TEST(StagePlanner, RefusesBadTimesByLayer) {
  StepSetup setup = setup_of({layer_of(1, 2), layer_of(1, 2)}, 2, 2, 1, UpdateMode::kBarrier);
  setup.layers[1].name = "head";
  for (double bad : {std::nan(""), -1.0, std::numeric_limits<double>::infinity(), 0.0}) {
    setup.layers[1].backward_ns = bad;
    Status status = plan_stages(setup).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find("layer 1 ('head'): backward"), std::string::npos)
        << status.message();
  }
}

}  // namespace
}  // namespace stagecoach
