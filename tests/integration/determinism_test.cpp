#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>

#include "tests/integration/training_fixture.h"

namespace stagecoach::testing {
namespace {

constexpr int kIterations = 30;

TinyRun run_on(const std::string& devices) {
  TinyRun run;
  run.devices = devices;
  run.iterations = kIterations;
  return run;
}

std::string sha_of(const TinyRun& run) {
  Result<TinyResult> result = train_tiny(run);
  EXPECT_TRUE(result.is_ok()) << result.status().to_string();
  return result.is_ok() ? result->weights_sha256 : "failed";
}

/// The run every other must equal bit for bit.
const TinyResult& reference() {
  static const TinyResult result = train_tiny(run_on("cpu:1")).value();
  return result;
}

TEST(Determinism, DeviceCountChangesNoBit) {
  for (const char* devices : {"cpu:2", "cpu:3", "cpu:4"}) {
    EXPECT_EQ(sha_of(run_on(devices)), reference().weights_sha256) << devices;
  }
}

TEST(Determinism, SingleEqualsRoundpipe) {
  TinyRun run = run_on("cpu:1");
  run.options.schedule = "single";
  EXPECT_EQ(sha_of(run), reference().weights_sha256);
}

TEST(Determinism, PartitionChangesNoBit) {
  TinyRun run = run_on("cpu:2");
  run.options.max_stage_layers = 1;
  Result<TinyResult> narrow = train_tiny(run);
  ASSERT_TRUE(narrow.is_ok()) << narrow.status().to_string();
  run.options.max_stage_layers = 3;
  Result<TinyResult> wide = train_tiny(run);
  ASSERT_TRUE(wide.is_ok()) << wide.status().to_string();
  EXPECT_NE(narrow->plan.stages.size(), wide->plan.stages.size());
  EXPECT_EQ(narrow->weights_sha256, reference().weights_sha256);
  EXPECT_EQ(wide->weights_sha256, reference().weights_sha256);
}

TEST(Determinism, UnevenSpeedsChangeNoBit) {
  EXPECT_EQ(sha_of(run_on("cpu:3[flops=2G,speed=1,0.25,0.5,h2d=500M,latency=30us]")),
            reference().weights_sha256);
}

TEST(Determinism, StaticDispatchChangesNoBit) {
  TinyRun run = run_on("cpu:3");
  run.options.dispatch = "static";
  EXPECT_EQ(sha_of(run), reference().weights_sha256);
}

// Blocks of 1.3 MB, which links of known rate carry in two chunks.
TEST(Determinism, HowParametersAndGradientsTravelChangesNoBit) {
  TinyRun run;
  run.model.n_embd = 128;
  run.model.n_inner = 1024;
  run.devices = "cpu:2";
  Result<TinyResult> expected = train_tiny(run);
  ASSERT_TRUE(expected.is_ok()) << expected.status().to_string();
  run.devices = "cpu:2[h2d=2G,d2h=2G]";
  for (BulkMethod method : {BulkMethod::kAlternating, BulkMethod::kSharedStream,
                            BulkMethod::kOneInFlight, BulkMethod::kWhole}) {
    run.options.bulk = method;
    Result<TinyResult> result = train_tiny(run);
    ASSERT_TRUE(result.is_ok()) << result.status().to_string();
    EXPECT_EQ(result->weights_sha256, expected->weights_sha256) << bulk_method_name(method);
  }
}

TEST(Determinism, HostThreadsChangeNoBit) {
  const TinyResult& expected = reference();
  for (const char* threads : {"1", "2", "4"}) {
    // Devices and trainer size their pools by this when they are made.
    ASSERT_EQ(setenv("STAGECOACH_THREADS", threads, 1), 0);
    EXPECT_EQ(sha_of(run_on("cpu:2")), expected.weights_sha256) << threads;
  }
  unsetenv("STAGECOACH_THREADS");
}

TEST(Determinism, RoundsKeyTheNumericsAndNothingElseDoes) {
  TinyRun run = run_on("cpu:1");
  run.options.rounds = 2;
  std::string one = sha_of(run);
  for (const char* devices : {"cpu:2", "cpu:3"}) {
    run.devices = devices;
    EXPECT_EQ(sha_of(run), one) << devices;
  }
  run.options.rounds = 4;
  run.devices = "cpu:4";
  std::string four = sha_of(run);
  run.devices = "cpu:1";
  EXPECT_EQ(sha_of(run), four);
}

TEST(Determinism, Bf16IsDeterministicToo) {
  TinyRun run = run_on("cpu:1");
  run.dtype = DType::kBF16;
  std::string one = sha_of(run);
  run.devices = "cpu:3";
  EXPECT_EQ(sha_of(run), one);
  EXPECT_NE(one, reference().weights_sha256);
}

TEST(Determinism, SeedChangesTheResult) {
  TinyRun run = run_on("cpu:1");
  run.options.seed = 2;
  EXPECT_NE(sha_of(run), reference().weights_sha256);
}

TEST(Training, LossFallsOnLearnableData) {
  const std::vector<double>& losses = reference().losses;
  EXPECT_NEAR(losses.front(), std::log(61.0), 0.3);
  EXPECT_LT(losses.back(), losses.front() - 0.5);
}

}  // namespace
}  // namespace stagecoach::testing
