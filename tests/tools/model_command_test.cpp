#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Commands on one finished run.
class ModelCommand : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new RunFolder();
    CommandResult result = folder_->train({"train.iterations=30", "train.eval_every=15"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  CommandResult run(std::vector<std::string> arguments) {
    return run_command(arguments, folder_->path());
  }
  CommandResult generate(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"generate", "--model", "out/checkpoint", "--prompt",
                                          "line "};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  static RunFolder* folder_;
};

RunFolder* ModelCommand::folder_ = nullptr;

TEST_F(ModelCommand, EvalAgreesWithTheRunsOwnValidation) {
  CommandResult result = run({"eval", "--model", "out/checkpoint", "--data", "validation.txt",
                              "--sequence", "16", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  Result<Json> json = Json::parse(result.output);
  ASSERT_TRUE(json.is_ok());
  double expected = folder_->json("out/summary.json").find("validation_loss")->as_number();
  EXPECT_NEAR(json->find("loss")->as_number(), expected, 1e-6 * expected);
  EXPECT_EQ(json->find("tokens")->as_integer(),
            static_cast<int64_t>(folder_->read("validation.txt").size()) - 1);
  EXPECT_NE(run({"eval", "--model", "out/checkpoint", "--data", "validation.txt"}).output, "");
}

TEST_F(ModelCommand, EvalAndGenerateRefuseModelsWithoutWeights) {
  CommandResult eval = run({"eval", "--model", "model.json", "--data", "train.txt"});
  EXPECT_EQ(eval.exit_code, 1);
  EXPECT_THAT(eval.errors, HasSubstr("has no weights"));
  CommandResult preset = run({"generate", "--model", "gpt2", "--prompt", "x"});
  EXPECT_EQ(preset.exit_code, 1);
  EXPECT_THAT(preset.errors, HasSubstr("gpt2"));
  EXPECT_EQ(run({"eval", "--model", "nowhere", "--data", "train.txt"}).exit_code, 1);
  EXPECT_EQ(run({"eval", "--model", "out/checkpoint", "--data", "none"}).exit_code, 1);
  CommandResult longer =
      run({"eval", "--model", "out/checkpoint", "--data", "train.txt", "--sequence", "64"});
  EXPECT_EQ(longer.exit_code, 1);
  EXPECT_THAT(longer.errors, HasSubstr("32 or less"));
  for (const char* length : {"0", "-1"}) {
    CommandResult none =
        run({"eval", "--model", "out/checkpoint", "--data", "train.txt", "--sequence", length});
    EXPECT_EQ(none.exit_code, 1);
    EXPECT_THAT(none.errors, HasSubstr(std::string("--sequence is ") + length));
  }
}

TEST_F(ModelCommand, GenerationIsDeterministicAndFollowsTheSeed) {
  CommandResult first = generate({"--tokens", "40", "--json"});
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  EXPECT_EQ(generate({"--tokens", "40", "--json"}).output, first.output);
  EXPECT_NE(generate({"--tokens", "40", "--seed", "2", "--json"}).output, first.output);
  Result<Json> json = Json::parse(first.output);
  ASSERT_TRUE(json.is_ok());
  EXPECT_EQ(json->find("tokens")->as_integer(), 40);
  EXPECT_EQ(json->find("token_ids")->items().size(), 40u);
  EXPECT_EQ(json->find("text")->as_string().substr(0, 5), "line ");
  // More tokens than positions: the window slides.
  EXPECT_EQ(generate({"--tokens", "60", "--temperature", "0"}).exit_code, 0);
}

TEST_F(ModelCommand, GenerateRefusesBadOptions) {
  auto refusal = [&](std::vector<std::string> more) {
    CommandResult result = generate(std::move(more));
    EXPECT_EQ(result.exit_code, 1);
    return result.errors;
  };
  EXPECT_THAT(refusal({"--tokens", "0"}), HasSubstr("--tokens is 0; it must be 1 to"));
  EXPECT_THAT(refusal({"--temperature", "-1"}), HasSubstr("--temperature is -1"));
  EXPECT_THAT(refusal({"--temperature", "nan"}), HasSubstr("--temperature is 'nan'"));
  EXPECT_THAT(refusal({"--top-p", "0"}), HasSubstr("--top-p is 0"));
  EXPECT_THAT(refusal({"--top-p", "1.5"}), HasSubstr("--top-p is 1.5"));
  EXPECT_THAT(refusal({"--seed", "-3"}), HasSubstr("--seed is -3"));
  CommandResult empty = run({"generate", "--model", "out/checkpoint", "--prompt", ""});
  EXPECT_EQ(empty.exit_code, 1);
  EXPECT_THAT(empty.errors, HasSubstr("--prompt is ''; it must be not empty"));
}

TEST_F(ModelCommand, ReportIsOneFileThatHoldsTheRun) {
  CommandResult result = run({"report", "out", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  Result<Json> json = Json::parse(result.output);
  ASSERT_TRUE(json.is_ok());
  EXPECT_GT(json->find("slices_shown")->as_integer(), 0);
  EXPECT_LE(json->find("slices_shown")->as_integer(), 12'000);
  std::string page = folder_->read("out/report.html");
  EXPECT_THAT(page, HasSubstr("<title>Stagecoach run</title>"));
  // Nothing is fetched: no address but the namespace of SVG.
  for (const char* mark : {"<link", "src=", "@import", "url(", "https://"}) {
    EXPECT_THAT(page, Not(HasSubstr(mark))) << mark;
  }
  size_t begin = page.find("type=\"application/json\">");
  ASSERT_NE(begin, std::string::npos);
  begin = page.find('>', begin) + 1;
  Result<Json> data = Json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  ASSERT_TRUE(data.is_ok()) << data.status().to_string();
  EXPECT_EQ(data->find("points")->items().size(), 30u);
  EXPECT_EQ(data->find("validation")->items().size(), 2u);
  EXPECT_EQ(data->find("summary")->find("iterations")->as_integer(), 30);
  EXPECT_EQ(data->find("config")->find("train")->find("batch")->as_integer(), 4);
  const Json* trace = data->find("trace");
  EXPECT_EQ(trace->find("shown")->as_integer(),
            static_cast<int64_t>(trace->find("slices")->items().size()));
  bool has_compute = false;
  for (const Json& track : trace->find("tracks")->items()) {
    has_compute |= track.find("process")->as_string() == "cpu:1" &&
                   track.find("name")->as_string() == "compute";
  }
  EXPECT_TRUE(has_compute);
}

TEST_F(ModelCommand, ReportWorksWithoutTraceAndSummaryAndRefusesOtherFolders) {
  folder_->write("bare/metrics.jsonl",
                 "{\"iteration\":1,\"loss\":2.5,\"tokens\":4,\"tokens_per_s\":1.0,"
                 "\"grad_norm\":1.0,\"lr\":0.1,\"bubble\":0.5}\n");
  EXPECT_EQ(run({"report", "bare"}).exit_code, 0);
  EXPECT_TRUE(folder_->exists("bare/report.html"));
  CommandResult nothing = run({"report", "."});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_THAT(nothing.errors, HasSubstr("holds no metrics.jsonl"));
  folder_->write("broken/metrics.jsonl", "{\"iteration\":1}\n{oops\n");
  CommandResult broken = run({"report", "broken"});
  EXPECT_EQ(broken.exit_code, 3);
  EXPECT_THAT(broken.errors, HasSubstr("broken/metrics.jsonl: line 2"));
  // Half a line at the end is what a crash leaves.
  folder_->write("torn/metrics.jsonl", "{\"iteration\":1,\"loss\":2.5}\n{\"iterat");
  EXPECT_EQ(run({"report", "torn"}).exit_code, 0);
}

}  // namespace
}  // namespace stagecoach
