// fp16 training through the command.
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Fp16Command : ::testing::Test {
  Json train(const std::string& out, std::vector<std::string> settings) {
    settings.push_back("output.dir=" + out);
    CommandResult result = folder.train(settings);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return folder.json(out + "/summary.json");
  }
  std::vector<Json> iterations_of(const std::string& out) {
    std::vector<Json> lines;
    for (const Json& line : RunFolder::json_lines(folder.read(out + "/metrics.jsonl"))) {
      if (line.find("loss") != nullptr) lines.push_back(line);
    }
    return lines;
  }
  RunFolder folder;
};

TEST_F(Fp16Command, ConvergesAsFp32Does) {
  Json single = train("fp32", {"train.iterations=40"});
  Json half = train("fp16", {"train.iterations=40", "model.dtype=fp16"});
  EXPECT_LT(number(single, "loss_last"), number(single, "loss_first") - 0.5);
  EXPECT_NEAR(number(half, "loss_first"), number(single, "loss_first"), 2e-3);
  EXPECT_NEAR(number(half, "loss_last"), number(single, "loss_last"), 0.02);
  EXPECT_NEAR(number(half, "validation_loss"), number(single, "validation_loss"), 0.02);
  // Small tensors are padded.
  EXPECT_NEAR(number(half, "host_state_bytes_per_parameter"), 16, 0.6);
  for (const Json& line : iterations_of("fp16")) {
    EXPECT_GE(number(line, "loss_scale"), 1);
    EXPECT_TRUE(line.find("skipped")->is_bool());
  }
  EXPECT_EQ(iterations_of("fp32")[0].find("loss_scale"), nullptr);
  EXPECT_EQ(iterations_of("fp32")[0].find("skipped"), nullptr);
  EXPECT_EQ(single.find("skipped_steps"), nullptr);
}

TEST_F(Fp16Command, NormsAreOfGradientsWithoutTheLossScale) {
  for (const std::string scale : {"64", "4096"}) {
    train("at" + scale, {"train.iterations=1", "model.dtype=fp16", "train.loss_scale=" + scale});
  }
  double small = number(iterations_of("at64")[0], "grad_norm");
  double large = number(iterations_of("at4096")[0], "grad_norm");
  EXPECT_NEAR(small, large, 1e-2 * large);
  train("single", {"train.iterations=1"});
  EXPECT_NEAR(number(iterations_of("single")[0], "grad_norm"), large, 1e-2 * large);
}

TEST_F(Fp16Command, OverflowIsSkippedAndResumedBitForBit) {
  std::vector<std::string> settings = {"model.dtype=fp16", "train.loss_scale=1e9",
                                       "optimizer.decay=constant"};
  Json whole = train("whole", settings);
  std::vector<Json> lines = iterations_of("whole");
  ASSERT_EQ(lines.size(), 20u);
  double scale = 1e9;
  int64_t skipped = 0;
  for (const Json& line : lines) {
    EXPECT_EQ(number(line, "loss_scale"), scale);
    if (!line.find("skipped")->as_bool()) continue;
    scale /= 2;
    ++skipped;
    EXPECT_TRUE(line.find("grad_norm")->is_null());  // JSON has no infinity
  }
  EXPECT_GE(skipped, 3);
  EXPECT_LT(skipped, 18);
  EXPECT_EQ(number(whole, "skipped_steps"), static_cast<double>(skipped));
  EXPECT_EQ(number(whole, "loss_scale"), scale);
  // Interrupted where some steps have been skipped and after some updates.
  for (const std::string part : {"2", "15", "20"}) {
    std::vector<std::string> some = settings;
    some.push_back("train.iterations=" + part);
    train("parts", some);
  }
  EXPECT_EQ(folder.json("parts/summary.json").find("weights_sha256")->as_string(),
            whole.find("weights_sha256")->as_string());
}

TEST_F(Fp16Command, SkippedStepsAreTheSameOnAnyScheduleAndDevices) {
  std::string expected;
  double skipped = 0;
  for (const std::string rounds : {"1", "2"}) {
    expected.clear();
    for (const std::vector<std::string>& way : {std::vector<std::string>{"schedule.kind=roundpipe"},
                                                {"schedule.kind=1f1b"},
                                                {"schedule.kind=gpipe"},
                                                {"schedule.kind=single", "devices.use=cpu:1"},
                                                {"schedule.kind=roundpipe", "devices.use=cpu:3"}}) {
      SCOPED_TRACE(testing::PrintToString(way) + " rounds " + rounds);
      std::vector<std::string> settings = {"model.dtype=fp16", "train.loss_scale=6e7",
                                           "train.iterations=14", "train.rounds=" + rounds};
      settings.insert(settings.end(), way.begin(), way.end());
      std::string out = "out-" + rounds + way[0].substr(14) + std::to_string(way.size());
      Json summary = train(out, settings);
      std::string sha = summary.find("weights_sha256")->as_string();
      if (expected.empty()) {
        expected = sha;
        skipped = number(summary, "skipped_steps");
      }
      EXPECT_EQ(sha, expected);
      EXPECT_EQ(number(summary, "skipped_steps"), skipped);
      EXPECT_GE(skipped, 3);
      EXPECT_LT(skipped, 13);
    }
  }
}

TEST_F(Fp16Command, AScaleForOtherTypesIsRefused) {
  CommandResult result = folder.train({"train.loss_scale=1024"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, AllOf(HasSubstr("train.loss_scale"), HasSubstr("only fp16")));
  result = folder.train({"model.dtype=fp16", "train.loss_scale=0.5"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr("\"auto\" or a number from 1"));
}

}  // namespace
}  // namespace stagecoach
