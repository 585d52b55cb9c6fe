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

/// Trains on paced devices; a busy host invalidates a measurement, which is then taken again.
Measured train(const RunFolder& folder, const std::string& schedule) {
  folder.write("deep.json",
               R"({"model_type": "gpt2", "vocab_size": 257, "n_positions": 16, "n_embd": 32,
                   "n_layer": 11, "n_head": 2, "n_inner": 64})");
  constexpr int kAttempts = 6;
  constexpr double kTokens = 8 * 16;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    CommandResult result = folder.train(
        {"model.path=deep.json", "devices.use=" + std::string(kDevices), "train.batch=8",
         "train.microbatches=8", "data.sequence=16", "train.iterations=7", "output.resume=never",
         "schedule.kind=" + schedule, "activations.policy=recompute", "data.validation=[]",
         "output.dir=" + schedule + std::to_string(attempt)});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    if (result.exit_code != 0) return {};
    Json summary = folder.json(schedule + std::to_string(attempt) + "/summary.json");
    if (number(summary, "overrun") > kMaxOverrun && attempt + 1 < kAttempts) continue;
    EXPECT_LE(number(summary, "overrun"), kMaxOverrun) << "invalid measurement";
    folder.write("times.json",
                 folder.read(schedule + std::to_string(attempt) + "/layer_times.json"));
    // Of the last iterations: the plan may change after the first.
    std::vector<double> steps_s, bubbles;
    for (const Json& line : RunFolder::json_lines(
             folder.read(schedule + std::to_string(attempt) + "/metrics.jsonl"))) {
      if (number(line, "iteration") < 5) continue;
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
    Measured measured = train(folder, schedule);
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

}  // namespace
}  // namespace stagecoach
