#include <gtest/gtest.h>

#include "tests/scheduler/schedule_fixture.h"

namespace stagecoach {
namespace {

/// Golden values at N = 4, M = 8: one stage's forward takes 1, backward 2, its halves 1 each.
struct Golden {
  const char* schedule;
  int chunks;  ///< 0: the schedule's own
  int memory_limit;
  double makespan;
  double span;
  double freed_at_input;
  std::vector<double> peak;
};

void expect_golden(const Golden& golden) {
  SCOPED_TRACE(golden.schedule);
  ScheduleParameters parameters = pipeline(4, 8);
  if (golden.chunks > 0) parameters.chunks = golden.chunks;
  if (golden.memory_limit > 0) parameters.memory_limit = golden.memory_limit;
  ScheduleRun run = run_valid(golden.schedule, parameters, golden.freed_at_input);
  EXPECT_DOUBLE_EQ(makespan(run), golden.makespan);
  EXPECT_DOUBLE_EQ(span(run), golden.span);
  EXPECT_EQ(run.peak_activations, golden.peak);
  // Both definitions of the idle share, from the values above.
  EXPECT_NEAR(run.measures.bubble_makespan, 1 - 24 / golden.makespan, 1e-12);
  EXPECT_NEAR(run.measures.bubble_span, 1 - 24 / golden.span, 1e-12);
}

TEST(ScheduleValues, FlushSchedules) {
  expect_golden({"gpipe", 0, 0, 33, 33, 0, {8, 8, 8, 8}});
  expect_golden({"1f1b", 0, 0, 33, 33, 0, {4, 3, 2, 1}});
  expect_golden({"interleaved", 2, 0, 28.5, 28.5, 0, {5.5, 4.5, 3.5, 2.5}});
  expect_golden({"interleaved", 4, 0, 26.25, 26.25, 0, {4.75, 4.25, 3.75, 3.25}});
  expect_golden({"looped-bfs", 2, 0, 28.5, 28.5, 0, {8, 8, 8, 8}});
}

TEST(ScheduleValues, ZeroBubbleSchedules) {
  expect_golden({"zb-h1", 0, 0, 27, 27, 0, {4, 4, 4, 4}});
  expect_golden({"zb-h1", 0, 0, 27, 27, 0.5, {4, 3.5, 3, 2.5}});
  expect_golden({"zb-1p", 0, 0, 27, 27, 0.5, {4, 3.5, 3, 2.5}});
  expect_golden({"zb-h1", 2, 0, 25.5, 25.5, 0.5, {4, 3.75, 3.5, 3.25}});
  expect_golden({"zb-h2", 0, 0, 27, 24, 0, {7, 7, 7, 7}});
  expect_golden({"zb-h2", 0, 0, 27, 24, 0.5, {7, 6, 5, 4}});
  expect_golden({"zb-2p", 0, 0, 27, 24, 0.5, {7.5, 6.5, 5.5, 4.5}});
}

TEST(ScheduleValues, FoldedSchedules) {
  expect_golden({"zb-v", 0, 0, 25.5, 24, 0, {4, 4, 4, 4}});
  expect_golden({"v-half", 0, 0, 26.5, 26.5, 0, {3, 3, 3, 3}});
  expect_golden({"v-min", 0, 0, 29.5, 29.5, 0, {2, 2, 2, 2}});
  expect_golden({"dualpipe", 0, 0, 26, 26, 0, {5, 5, 5, 5}});
  expect_golden({"dualpipev", 0, 0, 27, 27, 0, {4.5, 4.5, 4.5, 4.5}});
}

TEST(ScheduleValues, SearchUnderOtherMemoryLimits) {
  auto span_at = [](int limit) {
    ScheduleParameters parameters = pipeline(4, 8);
    parameters.memory_limit = limit;
    return span(run_valid("zb-2p", parameters));
  };
  EXPECT_DOUBLE_EQ(span_at(7), 24);  // 2N - 1
  EXPECT_DOUBLE_EQ(span_at(8), 24);  // 2N
  EXPECT_DOUBLE_EQ(span_at(6), 25);  // 1.5N
}

TEST(ScheduleValues, FewerMicroBatchesThanStages) {
  EXPECT_DOUBLE_EQ(makespan(run_valid("1f1b", pipeline(4, 2))), 15);
}

TEST(ScheduleValues, InterleavedWithLargerGroup) {
  // M = 10, G = 5, N = 4 reaches the closed form although N does not divide M.
  ScheduleParameters parameters = pipeline(4, 10);
  parameters.group = 5;
  ScheduleRun run = run_valid("interleaved", parameters);
  EXPECT_DOUBLE_EQ(makespan(run), (10 * 2 + 3) * 3 / 2.0);
}

TEST(ScheduleValues, UnequalHalvesInZbH1) {
  // W longer than I: the fixed order idles 2.4 where the formula, which asks for W <= I, says 1.8.
  ScheduleParameters parameters = pipeline(4, 8);
  parameters.times.input_ns = kUnitNs * 8 / 10;
  parameters.times.weight_ns = kUnitNs * 12 / 10;
  ScheduleRun run = run_valid("zb-h1", parameters);
  EXPECT_NEAR(span(run) - 24, 2.4, 1e-9);
  EXPECT_FALSE(run.closed_form.has_value());
}

TEST(ScheduleValues, FoldedPeaksAtEightStages) {
  EXPECT_EQ(run_valid("v-min", pipeline(8, 16)).peak_activations[1], 4);
  EXPECT_EQ(run_valid("v-half", pipeline(8, 16)).peak_activations[0], 5);
}

TEST(ScheduleValues, DualPipeIdle) {
  auto idle = [](const char* name, int stages) {
    ScheduleParameters parameters = pipeline(stages, 2 * stages);
    return span(run_valid(name, parameters)) - 3 * 2 * stages;
  };
  EXPECT_DOUBLE_EQ(idle("dualpipe", 4), 2);
  EXPECT_DOUBLE_EQ(idle("dualpipe", 6), 4);
  EXPECT_DOUBLE_EQ(idle("dualpipe", 8), 6);
  EXPECT_DOUBLE_EQ(idle("dualpipev", 4), 3);
  EXPECT_DOUBLE_EQ(idle("dualpipev", 8), 7);
}

TEST(ScheduleValues, PaciWholeRun) {
  // Ten updates: the run idles one fill and drain, 9 units with 4 stages, 21 with 8.
  for (int stages : {4, 8}) {
    ScheduleParameters parameters = pipeline(stages, 10 * 2 * stages);
    parameters.accumulation = 2 * stages;
    ScheduleRun run = run_valid("paci", parameters);
    EXPECT_DOUBLE_EQ(makespan(run) - 3 * 10 * 2 * stages, 3 * (stages - 1));
  }
  EXPECT_EQ(run_valid("paci", pipeline(4, 80)).peak_activations, (std::vector<double>{4, 3, 2, 1}));
}

TEST(ScheduleValues, PaciBubbleOfWholeRuns) {
  // N = 4, a = 8: T = 8, 16, 32, 64, 128 micro-batches.
  const std::pair<int, double> expected[] = {
      {8, 0.273}, {16, 0.158}, {32, 0.086}, {64, 0.045}, {128, 0.023}};
  for (const auto& [total, bubble] : expected) {
    ScheduleParameters parameters = pipeline(4, total);
    parameters.accumulation = 8;
    EXPECT_NEAR(run_valid("paci", parameters).measures.bubble_makespan, bubble, 0.0005);
  }
}

/// Work / (devices * makespan) with a hop of `hop` forwards.
double efficiency(const char* name, ScheduleParameters parameters, double hop) {
  parameters.times.hop_ns = static_cast<int64_t>(hop * kUnitNs);
  return 1 - run_valid(name, parameters).measures.bubble_makespan;
}

TEST(ScheduleValues, PaciEfficiencyUnderLatency) {
  const double hops[] = {0, 0.1, 0.25, 0.5, 1};
  const double four[] = {0.993, 0.945, 0.882, 0.794, 0.662};
  const double eight[] = {0.983, 0.929, 0.858, 0.761, 0.621};
  const double slack[] = {0.992, 0.992, 0.991, 0.990, 0.988};
  for (int i = 0; i < 5; ++i) {
    EXPECT_NEAR(efficiency("paci", pipeline(4, 400), hops[i]), four[i], 0.001) << hops[i];
    EXPECT_NEAR(efficiency("paci", pipeline(8, 400), hops[i]), eight[i], 0.001) << hops[i];
    ScheduleParameters doubled = pipeline(4, 400);
    doubled.slack = 3;
    EXPECT_NEAR(efficiency("paci", doubled, hops[i]), slack[i], 0.001) << hops[i];
  }
}

TEST(ScheduleValues, OneFOneBUnderLatency) {
  ScheduleParameters parameters = pipeline(4, 64);
  EXPECT_DOUBLE_EQ(makespan(run_valid("1f1b", parameters)), 201);
  parameters.times.hop_ns = kUnitNs / 4;
  EXPECT_NEAR(makespan(run_valid("1f1b", parameters)), 226, 0.5);
  parameters.slack = 3;
  EXPECT_DOUBLE_EQ(makespan(run_valid("1f1b", parameters)), 202.5);
}

TEST(ScheduleValues, BreadthFirstLosesTwoHopsARank) {
  ScheduleParameters parameters = pipeline(4, 64);
  parameters.times.hop_ns = kUnitNs / 4;
  EXPECT_DOUBLE_EQ(makespan(run_valid("gpipe", parameters)), 201 + 2 * 3 * 0.25);
}

TEST(ScheduleValues, PaciSpeedUpOverFlush) {
  // (m + N - 1) / m at N = 8, and the projection of the paper: 1F1B's rate over its efficiency.
  auto flush_efficiency = [](int stages, int micro_batches) {
    return 1 - run_valid("1f1b", pipeline(stages, micro_batches)).measures.bubble_makespan;
  };
  EXPECT_NEAR(1 / flush_efficiency(8, 4), 2.75, 1e-9);
  EXPECT_NEAR(1 / flush_efficiency(8, 8), 1.875, 1e-9);
  EXPECT_NEAR(1 / flush_efficiency(8, 16), 1.44, 0.005);
  EXPECT_NEAR(11.80 / flush_efficiency(8, 24), 15.24, 0.005);
  EXPECT_NEAR(0.76 / flush_efficiency(32, 96), 1.005, 0.001);
}

TEST(ScheduleValues, RoundPipeMakespans) {
  EXPECT_DOUBLE_EQ(makespan(run_valid("roundpipe", slot_pipeline(4, 8, 2, 3, 4))), 13);
  // The figure's 13 layers: makespan 37, bubble 3 / 37.
  ScheduleRun figure = run_valid("roundpipe", slot_pipeline(4, 8, 4, 13, 4));
  EXPECT_DOUBLE_EQ(makespan(figure), 37);
  EXPECT_NEAR(figure.measures.bubble_makespan, 0.0811, 0.00005);
}

TEST(ScheduleValues, RoundPipeOutsideItsFormula) {
  auto bubble = [](const ScheduleParameters& parameters) {
    return run_valid("roundpipe", parameters).measures.bubble_makespan;
  };
  // Longer rounds end unevenly unless the devices divide the slots; shorter ones starve.
  EXPECT_NEAR(bubble(slot_pipeline(4, 8, 4, 13, 8)), 0.150, 0.0005);
  EXPECT_NEAR(bubble(slot_pipeline(4, 24, 4, 5, 2)), 0.379, 0.0005);
  EXPECT_NEAR(bubble(slot_pipeline(4, 24, 4, 5, 3)), 0.194, 0.0005);
  EXPECT_NEAR(bubble(slot_pipeline(4, 24, 4, 5, 4)), 0.053, 0.0005);
  EXPECT_NEAR(bubble(slot_pipeline(4, 24, 4, 5, 8)), 0.069, 0.0005);
}

TEST(ScheduleValues, RoundPipeEfficiencyUnderLatency) {
  // N = 4, S = 16, 20 rounds of M_R micro-batches; hop / slot = 0, 0.1, 0.25, 0.5, 1.
  const double hops[] = {0, 0.1, 0.25, 0.5, 1};
  const double four[] = {0.991, 0.921, 0.834, 0.720, 0.565};
  const double five[] = {0.993, 0.992, 0.991, 0.861, 0.683};
  for (int i = 0; i < 5; ++i) {
    EXPECT_NEAR(efficiency("roundpipe", slot_pipeline(4, 80, 5, 11, 4), hops[i]), four[i], 0.001);
    EXPECT_NEAR(efficiency("roundpipe", slot_pipeline(4, 100, 5, 11, 5), hops[i]), five[i], 0.001);
    EXPECT_GE(efficiency("roundpipe", slot_pipeline(4, 160, 5, 11, 8), hops[i]), 0.985);
  }
  EXPECT_GE(efficiency("roundpipe", slot_pipeline(4, 120, 5, 11, 6), 0.5), 0.985);
}

TEST(ScheduleValues, AsynchronousRoundPipeFillsOnce) {
  // Ten iterations of M * S = 40: 12 / (10 * 40 + 12); synchronous ones fill each time.
  ScheduleParameters parameters = slot_pipeline(4, 8, 2, 3, 4);
  parameters.iterations = 10;
  parameters.asynchronous = 1;
  ScheduleRun asynchronous = run_valid("roundpipe", parameters);
  EXPECT_NEAR(asynchronous.measures.bubble_makespan, 12.0 / 412, 1e-12);
  EXPECT_EQ(asynchronous.versions.kept, std::vector<int>(4, 2));
  parameters.asynchronous = 0;
  EXPECT_GT(run_valid("roundpipe", parameters).measures.bubble_makespan, 12.0 / 412);
}

}  // namespace
}  // namespace stagecoach
