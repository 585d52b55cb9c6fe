#include "scheduler/plan_measures.h"

#include <gtest/gtest.h>

#include "tests/scheduler/schedule_fixture.h"

namespace stagecoach {
namespace {

TEST(PlanMeasures, DefinitionsAreNamed) {
  EXPECT_EQ(bubble_definition_name(BubbleDefinition::kMakespan), "makespan");
  EXPECT_EQ(bubble_definition_name(BubbleDefinition::kSpan), "span");
}

TEST(PlanMeasures, DefinitionsDifferWhereRanksAreStaggered) {
  ScheduleRun run = run_valid("zb-h2", pipeline(4, 8));
  EXPECT_NEAR(run.measures.bubble_makespan, 3.0 / 27, 1e-12);
  EXPECT_NEAR(run.measures.bubble_span, 0, 1e-12);
  // The stagger is all the idle time there is: 0 + 1 + 2 + 3 units at each end.
  EXPECT_DOUBLE_EQ(units(run.measures.idle.fill_ns), 6);
  EXPECT_DOUBLE_EQ(units(run.measures.idle.steady_ns), 0);
  EXPECT_DOUBLE_EQ(units(run.measures.idle.drain_ns), 6);
}

TEST(PlanMeasures, IdleTimeOfOneFOneBByPlace) {
  ScheduleRun run = run_valid("1f1b", pipeline(4, 8));
  EXPECT_DOUBLE_EQ(units(run.measures.idle.fill_ns), 6);     // 0 + 1 + 2 + 3
  EXPECT_DOUBLE_EQ(units(run.measures.idle.drain_ns), 12);   // 2 * (0 + 1 + 2 + 3)
  EXPECT_DOUBLE_EQ(units(run.measures.idle.steady_ns), 18);  // 4 * 9 in all
}

TEST(PlanMeasures, DevicesWithoutActionsAreIdleThroughout) {
  ScheduleRun run = run_valid("slidedp", pipeline(4, 1));
  EXPECT_NEAR(run.measures.bubble_makespan, 0.75, 1e-12);
  EXPECT_EQ(run.measures.idle.fill_ns, 3 * run.measures.makespan_ns);
}

TEST(PlanMeasures, ActivationsOverTimeInBytes) {
  ScheduleRun run = run_valid("1f1b", pipeline(2, 2));
  ActivationUse use = activation_use(run.plan, run.timeline, {100, 30}, 0);
  EXPECT_EQ(use.peak_bytes, (std::vector<int64_t>{200, 30}));
  // Rank 0: F0 at 0, F1 at 1, B0 ends at 6 (waits for rank 1's, which ends at 4), B1 at 9.
  std::vector<std::pair<double, int64_t>> samples;
  for (const MemorySample& sample : use.samples[0]) {
    samples.emplace_back(units(sample.time_ns), sample.bytes);
  }
  EXPECT_EQ(samples,
            (std::vector<std::pair<double, int64_t>>{{0, 100}, {1, 200}, {6, 100}, {9, 0}}));
}

TEST(PlanMeasures, HalvesFreeTheirShares) {
  ScheduleRun run = run_valid("zb-h1", pipeline(2, 2));
  ActivationUse use = activation_use(run.plan, run.timeline, {100, 100}, 0.3);
  EXPECT_EQ(use.samples[1].back().bytes, 0);
  bool after_input = false;
  for (const MemorySample& sample : use.samples[1]) after_input |= sample.bytes % 100 == 70;
  EXPECT_TRUE(after_input);
}

TEST(PlanMeasures, StreamedStagesHoldOneStageWhileTheyRunBackward) {
  ScheduleRun run = run_valid("roundpipe", slot_pipeline(2, 4, 2, 3, 4));
  ActivationUse use = activation_use(run.plan, run.timeline, {10, 10, 10}, 0);
  EXPECT_EQ(use.peak_bytes, (std::vector<int64_t>{10, 10}));
}

TEST(PlanMeasures, HopsCostOnlyBetweenDevices) {
  ScheduleParameters parameters = pipeline(2, 1);
  parameters.times.hop_ns = kUnitNs;
  // Two hops on the way there and back.
  EXPECT_DOUBLE_EQ(makespan(run_valid("1f1b", parameters)), 6 + 2);
  // The V placement turns round on one device.
  ScheduleParameters alone = pipeline(1, 1);
  alone.times.hop_ns = kUnitNs;
  EXPECT_DOUBLE_EQ(makespan(run_valid("zb-v", alone)), 3);
}

}  // namespace
}  // namespace stagecoach
