// What a run measured, given to the simulator, predicts what the run took.
#include <algorithm>
#include <gtest/gtest.h>

#include "core/json.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

constexpr double kMaxOverrun = 0.01;
constexpr const char* kDevices = "cpu:4[flops=100M]";

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

struct Measured {
  double step_s = 0;
  double bubble = 0;
};

/// What a run is to be predicted of.
struct PredictedRun {
  std::string devices = kDevices;
  std::string schedule = "roundpipe";
  int micro_batches = 8;
  int rounds = 1;
  std::string update = "overlap";
};

/// Trains on paced devices, in folder `output` and an attempt's number; a busy host invalidates a
/// measurement, which is then taken again.
Measured train(const RunFolder& folder, const PredictedRun& run, const std::string& output) {
  folder.write("deep.json",
               R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 16, "n_embd": 32,
                   "n_layer": 11, "n_head": 2, "n_inner": 64})");
  constexpr int kAttempts = 6;
  constexpr double kTokens = 8 * 16;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string name = output + std::to_string(attempt);
    CommandResult result = folder.train(
        {"model.path=deep.json", "devices.use=" + run.devices, "train.batch=8",
         "train.microbatches=" + std::to_string(run.micro_batches), "data.sequence=16",
         "train.rounds=" + std::to_string(run.rounds), "train.iterations=9", "output.resume=never",
         "schedule.kind=" + run.schedule, "schedule.update=" + run.update,
         "activations.policy=recompute", "data.validation=[]", "output.dir=" + name});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    if (result.exit_code != 0) return {};
    Json summary = folder.json(name + "/summary.json");
    if (number(summary, "overrun") > kMaxOverrun && attempt + 1 < kAttempts) continue;
    EXPECT_LE(number(summary, "overrun"), kMaxOverrun) << "invalid measurement";
    folder.write("times.json", folder.read(name + "/layer_times.json"));
    // Of the last iterations: the plan may change after the first.
    std::vector<double> steps_s, bubbles;
    for (const Json& line : RunFolder::json_lines(folder.read(name + "/metrics.jsonl"))) {
      if (number(line, "iteration") < 6) continue;
      steps_s.push_back(kTokens / number(line, "tokens_per_s"));
      bubbles.push_back(number(line, "bubble"));
    }
    return {median(steps_s), median(bubbles)};
  }
  return {};
}

TEST(SlowPrediction, SimulatedStepsAreWithinATenthOfMeasuredOnes) {
  RunFolder folder;
  for (const char* schedule : {"roundpipe", "1f1b", "interleaved"}) {
    PredictedRun run;
    run.schedule = schedule;
    run.update = "barrier";
    Measured measured = train(folder, run, schedule);
    CommandResult simulated =
        run_command({"simulate", "--layer-times", "times.json", "--devices", kDevices, "--schedule",
                     schedule, "--microbatches", "8", "--update", "barrier", "--json"},
                    folder.path());
    ASSERT_EQ(simulated.exit_code, 0) << simulated.errors;
    Result<Json> json = Json::parse(simulated.output);
    ASSERT_TRUE(json.is_ok());
    double ratio = number(*json, "step_s") / measured.step_s;
    EXPECT_NEAR(ratio, 1, 0.1) << schedule;
    EXPECT_NEAR(number(*json, "bubble"), measured.bubble, 0.05) << schedule;
    RecordProperty(schedule, std::to_string(ratio));
  }
}

/// Machines and runs that differ in what bounds a step.
const PredictedRun kProfiledRuns[] = {
    {"cpu:1[flops=100M,h2d=200M,d2h=200M]"},
    {"cpu:1[flops=100M,h2d=15M,d2h=15M]", "roundpipe", 8, 2},
    {"cpu:2[flops=100M,h2d=100M,d2h=100M]"},
    {"cpu:2[flops=100M,h2d=100M,d2h=100M]", "roundpipe", 4, 1, "barrier"},
    {"cpu:2[flops=100M,h2d=30M,d2h=20M]"},
    {"cpu:2[flops=100M,speed=1,0.5,h2d=100M,d2h=100M]"},
    {"cpu:3[flops=80M,h2d=60M,d2h=60M]"},
    {"cpu:3[flops=80M,speed=1,1,0.5,h2d=100M,d2h=100M]"},
    {"cpu:4[flops=60M,h2d=100M,d2h=100M]"},
    {"cpu:4[flops=60M,h2d=100M,d2h=100M]", "roundpipe", 8, 1, "async"}};

class SlowProfiles : public testing::TestWithParam<PredictedRun> {};

TEST_P(SlowProfiles, PredictStepsWithinATenth) {
  RunFolder folder;
  const PredictedRun& run = GetParam();
  Measured measured = train(folder, run, "out");
  CommandResult bench = run_command({"bench", "bandwidth", "quick", "--devices", run.devices,
                                     "--min-time", "50ms", "--save-profile", "machine.json"},
                                    folder.path());
  ASSERT_EQ(bench.exit_code, 0) << bench.errors;
  CommandResult planned = run_command({"plan",
                                       "--model",
                                       "deep.json",
                                       "--devices",
                                       run.devices,
                                       "--profile",
                                       "machine.json",
                                       "--sequence",
                                       "16",
                                       "--batch",
                                       "8",
                                       "--microbatches",
                                       std::to_string(run.micro_batches),
                                       "--rounds",
                                       std::to_string(run.rounds),
                                       "--update",
                                       run.update,
                                       "--dtype",
                                       "fp32",
                                       "--json"},
                                      folder.path());
  ASSERT_EQ(planned.exit_code, 0) << planned.errors;
  Result<Json> json = Json::parse(planned.output);
  ASSERT_TRUE(json.is_ok());
  double ratio = number(*json->find("predicted"), "step_s") / measured.step_s;
  EXPECT_NEAR(ratio, 1, 0.1) << run.devices << " " << measured.step_s << " s";
  RecordProperty("ratio", std::to_string(ratio));
}

INSTANTIATE_TEST_SUITE_P(, SlowProfiles, testing::ValuesIn(kProfiledRuns),
                         [](const testing::TestParamInfo<PredictedRun>& one) {
                           return "Run" + std::to_string(one.index);
                         });

}  // namespace
}  // namespace stagecoach
