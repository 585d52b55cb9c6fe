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
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (const char* devices : {"cpu:1", "cpu:2", "cpu:3", "cpu:4"}) {
      EXPECT_EQ(sha_of(bound_run(GetParam(), devices, dtype, 1)), expected_sha(dtype, 1))
          << devices << " " << dtype_name(dtype);
    }
  }
}

TEST_P(BoundSchedule, RoundsKeyTheNumericsAndNothingElseDoes) {
  for (int rounds : {2, 12}) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      for (const char* devices : {"cpu:2", "cpu:4"}) {
        EXPECT_EQ(sha_of(bound_run(GetParam(), devices, dtype, rounds)),
                  expected_sha(dtype, rounds))
            << devices << " " << dtype_name(dtype) << " " << rounds;
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach::testing
