#include <algorithm>
#include <gtest/gtest.h>

#include "tests/integration/training_fixture.h"

namespace stagecoach::testing {
namespace {

constexpr double kTolerance = 0.05;
constexpr double kTimeTolerance = 0.10;

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

TinyRun paced_run(const std::string& devices) {
  TinyRun run;
  run.devices = devices;
  run.model.n_layer = 6;
  run.options.batch = 8;
  run.options.micro_batches = 8;
  run.iterations = 5;
  return run;
}

/// A head of 4096 rows that weighs as much as a third of the blocks together.
TinyRun heavy_head_run(const std::string& devices) {
  TinyRun run = paced_run(devices);
  run.model.vocab_size = 4096;
  run.model.n_embd = 128;
  run.model.n_head = 4;
  run.model.n_inner = 512;
  run.model.n_layer = 12;
  run.iterations = 2;
  return run;
}

/// The measured share against the simulation of the plan with the measured action times, and the
/// iteration times that follow from both: the work is the same.
void expect_as_simulated(const TinyResult& result, const std::string& run) {
  double measured = median(result.bubbles), simulated = result.report.bubble_simulated;
  EXPECT_NEAR(measured, simulated, kTolerance) << run;
  EXPECT_NEAR((1 - measured) / (1 - simulated), 1, kTimeTolerance) << run;
}

TEST(SlowIdleShare, RoundpipeIsWithinFivePointsOfSimulation) {
  for (const char* devices : {"cpu:2[flops=40M]", "cpu:4[flops=40M]"}) {
    Result<TinyResult> result = train_paced(paced_run(devices));
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    ASSERT_LE(result->report.overrun, kMaxOverrun) << devices << ": invalid measurement";
    expect_as_simulated(*result, devices);
    RecordProperty("measured", std::to_string(median(result->bubbles)));
  }
}

TEST(SlowIdleShare, BoundSchedulesAreWithinFivePointsOfSimulation) {
  for (const char* schedule : {"1f1b", "interleaved", "zb-h1"}) {
    for (const char* devices : {"cpu:2[flops=80M]", "cpu:4[flops=40M]"}) {
      TinyRun run = paced_run(devices);
      run.options.schedule = schedule;
      run.iterations = 3;
      Result<TinyResult> result = train_paced(run);
      ASSERT_TRUE(result.is_ok()) << result.status().to_string();
      ASSERT_LE(result->report.overrun, kMaxOverrun) << devices << ": invalid measurement";
      expect_as_simulated(*result, std::string(schedule) + " on " + devices);
      RecordProperty(schedule, std::to_string(median(result->bubbles)));
    }
  }
}

TEST(SlowIdleShare, RotationBeatsStaticBindingWithAHeavyHead) {
  TinyRun run = heavy_head_run("cpu:4[flops=300M]");
  Result<TinyResult> rotation = train_paced(run);
  ASSERT_TRUE(rotation.is_ok()) << rotation.status().to_string();
  run.options.dispatch = "static";
  Result<TinyResult> bound = train_paced(run);
  ASSERT_TRUE(bound.is_ok()) << bound.status().to_string();
  ASSERT_LE(rotation->report.overrun, kMaxOverrun);
  ASSERT_LE(bound->report.overrun, kMaxOverrun);
  EXPECT_LT(median(rotation->bubbles), median(bound->bubbles));
  EXPECT_EQ(rotation->weights_sha256, bound->weights_sha256);
}

}  // namespace
}  // namespace stagecoach::testing
