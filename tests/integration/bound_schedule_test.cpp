#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <tuple>

#include "tests/integration/training_fixture.h"

namespace stagecoach::testing {
namespace {

/// Eight layers, so that four devices with two chunks each have one apiece. Embedding and head are
/// tied.
TinyRun bound_run(const std::string& schedule, const std::string& devices, DType dtype,
                  int rounds) {
  TinyRun run;
  run.devices = devices;
  run.dtype = dtype;
  run.model.n_layer = 6;
  run.options.schedule = schedule;
  run.options.batch = 12;
  run.options.micro_batches = 12;
  run.options.rounds = rounds;
  run.iterations = 2;
  return run;
}

std::string sha_of(const TinyRun& run) {
  Result<TinyResult> result = train_tiny(run);
  EXPECT_TRUE(result.is_ok()) << result.status().to_string();
  return result.is_ok() ? result->weights_sha256 : "failed";
}

/// The numerics key is micro-batches, rounds and dtype: `single` is what all must equal.
const std::string& expected_sha(DType dtype, int rounds) {
  static std::map<std::pair<DType, int>, std::string> known;
  std::string& sha = known[{dtype, rounds}];
  if (sha.empty()) sha = sha_of(bound_run("single", "cpu:1", dtype, rounds));
  return sha;
}

class BoundSchedule : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, BoundSchedule,
                         ::testing::Values("roundpipe", "gpipe", "1f1b", "interleaved",
                                           "looped-bfs", "zb-h1", "zb-v"));

TEST_P(BoundSchedule, DevicesChangeNoBit) {
  for (DType dtype : swept_dtypes({DType::kF32, DType::kBF16})) {
    for (const char* devices : {"cpu:1", "cpu:2", "cpu:3", "cpu:4"}) {
      EXPECT_EQ(sha_of(bound_run(GetParam(), devices, dtype, 1)), expected_sha(dtype, 1))
          << devices << " " << dtype_name(dtype);
    }
  }
}

TEST_P(BoundSchedule, RoundsKeyTheNumericsAndNothingElseDoes) {
  for (int rounds : {2, 12}) {
    for (DType dtype : swept_dtypes({DType::kF32, DType::kBF16})) {
      for (const char* devices : {"cpu:2", "cpu:4"}) {
        EXPECT_EQ(sha_of(bound_run(GetParam(), devices, dtype, rounds)),
                  expected_sha(dtype, rounds))
            << devices << " " << dtype_name(dtype) << " " << rounds;
      }
    }
  }
}

TEST(BoundSchedules, FewerMicroBatchesThanDevices) {
  for (int micro_batches : {1, 3}) {
    auto run_of = [&](const char* schedule, const char* devices) {
      TinyRun run = bound_run(schedule, devices, DType::kF32, 1);
      run.options.batch = run.options.micro_batches = micro_batches;
      return run;
    };
    std::string expected = sha_of(run_of("single", "cpu:1"));
    for (const char* schedule : {"gpipe", "1f1b", "looped-bfs", "zb-h1", "zb-v"}) {
      EXPECT_EQ(sha_of(run_of(schedule, "cpu:4")), expected) << schedule << " " << micro_batches;
    }
  }
}

/// Uneven and slow devices, links and latencies widen every window between streams.
TEST_P(BoundSchedule, UnevenSpeedsChangeNoBit) {
  for (const char* activations : {"auto", "recompute"}) {
    TinyRun run = bound_run(GetParam(), "cpu:3[flops=2G,speed=1,0.25,0.5,h2d=200M,latency=30us]",
                            DType::kBF16, 3);
    run.options.activations = activations;
    EXPECT_EQ(sha_of(run), expected_sha(DType::kBF16, 3)) << activations;
  }
}

TEST_P(BoundSchedule, WhatIsKeptChangesNoBit) {
  for (DType dtype : swept_dtypes({DType::kF32, DType::kBF16})) {
    for (const char* devices : {"cpu:1", "cpu:4"}) {
      TinyRun run = bound_run(GetParam(), devices, dtype, 1);
      run.options.activations = "recompute";
      EXPECT_EQ(sha_of(run), expected_sha(dtype, 1)) << devices << " " << dtype_name(dtype);
    }
  }
}

TEST(BoundActivations, AutoKeepsWhereItFitsAndRecomputesElse) {
  TinyRun run = bound_run("gpipe", "cpu:2", DType::kF32, 1);
  Result<TinyResult> roomy = train_tiny(run);
  ASSERT_TRUE(roomy.is_ok()) << roomy.status().to_string();
  EXPECT_EQ(roomy->report.activations, "keep");
  ByteCount peak = *std::max_element(roomy->report.device_peak_bytes.begin(),
                                     roomy->report.device_peak_bytes.end());
  run.devices = "cpu:2[memory=" + std::to_string(peak / 2) + "]";
  Result<TinyResult> tight = train_tiny(run);
  ASSERT_TRUE(tight.is_ok()) << tight.status().to_string();
  EXPECT_EQ(tight->report.activations, "recompute");
  EXPECT_EQ(tight->weights_sha256, roomy->weights_sha256);
  run.options.activations = "keep";
  Status refused = train_tiny(run).status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), ::testing::HasSubstr("activations.policy"));
}

/// Evaluation streams its stages whatever trains.
TEST(BoundEvaluation, GivesTheLossOfTheStreamedSchedule) {
  std::vector<double> losses;
  for (const char* schedule : {"roundpipe", "1f1b", "zb-v"}) {
    TinyRun run = bound_run(schedule, "cpu:2", DType::kF32, 1);
    auto devices = built_in_backends().open_devices(run.devices).value();
    std::vector<Device*> pointers = {devices[0].get(), devices[1].get()};
    auto trainer = Trainer::create(make_gpt2(run.model, NetworkHead::kLoss, run.dtype).value(),
                                   pointers, run.options)
                       .value();
    trainer->initialize_parameters();
    std::vector<int32_t> tokens(run.options.batch * run.options.sequence, 5);
    HostTensor batch = HostTensor::of(tokens, Shape{run.options.batch, run.options.sequence});
    for (int step = 0; step < 2; ++step) {
      losses.push_back(trainer->evaluate(batch, batch).value().loss);
      ASSERT_TRUE(trainer->forward_backward(batch, batch).is_ok());
      // Gradients of two passes add up to one step.
      ASSERT_TRUE(trainer->forward_backward(batch, batch).is_ok());
      ASSERT_TRUE(trainer->step(1e-2).is_ok());
    }
  }
  for (size_t i = 2; i < losses.size(); ++i) EXPECT_EQ(losses[i], losses[i % 2]);
  EXPECT_NE(losses[0], losses[1]);
}

}  // namespace
}  // namespace stagecoach::testing
