// Every kind of optimizer through the command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Kind {
  std::string name;
  std::vector<std::string> settings;
  double bytes_per_parameter;   ///< of state, bf16
  std::string moments = "F32";  ///< as a checkpoint holds them
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> list = {
      {"adamw", {"optimizer.kind=adamw"}, 14},
      {"adam", {"optimizer.kind=adam"}, 14},
      {"momentum", {"optimizer.kind=sgd", "optimizer.lr=0.1"}, 10},
      {"sgd", {"optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.lr=0.3"}, 6},
      {"lion", {"optimizer.kind=lion", "optimizer.betas=[0.9, 0.99]"}, 10},
      {"adamw-bf16", {"optimizer.moments=bf16"}, 10, "BF16"},
      {"adamw-8bit", {"optimizer.moments=8bit"}, 8.5, "U8"},
      {"lion-8bit", {"optimizer.kind=lion", "optimizer.moments=8bit"}, 7.3, "U8"},
  };
  return list;
}

TEST(OptimizerKindCommand, EachTrainsResumesAndKeepsWhatItNeeds) {
  RunFolder folder;
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    std::vector<std::string> settings = kind.settings;
    settings.push_back("model.dtype=bf16");
    auto in = [&](const std::string& out, const std::string& setting) {
      std::vector<std::string> all = settings;
      all.push_back("output.dir=" + out);
      all.push_back(setting);
      return all;
    };
    CommandResult whole = folder.train(in(kind.name, "optimizer.decay=constant"));
    ASSERT_EQ(whole.exit_code, 0) << whole.errors;
    Json summary = folder.json(kind.name + "/summary.json");
    EXPECT_LT(number(summary, "loss_last"), number(summary, "loss_first") - 0.2);
    // Small tensors are padded.
    EXPECT_NEAR(number(summary, "host_state_bytes_per_parameter"), kind.bytes_per_parameter, 0.6);
    // In two parts, through a checkpoint that holds the moments there are and no other.
    std::string parts = kind.name + "-parts";
    for (int iterations : {10, 20}) {
      std::vector<std::string> all = in(parts, "optimizer.decay=constant");
      all.push_back("train.iterations=" + std::to_string(iterations));
      CommandResult part = folder.train(all);
      ASSERT_EQ(part.exit_code, 0) << part.errors;
    }
    EXPECT_EQ(folder.json(parts + "/summary.json").find("weights_sha256")->as_string(),
              summary.find("weights_sha256")->as_string());
    std::string moments = folder.read(parts + "/checkpoint/optimizer.safetensors");
    auto has = [&](const std::string& text) { return moments.find(text) != std::string::npos; };
    bool two = kind.name.starts_with("adam");
    EXPECT_EQ(has(".exp_avg\""), kind.name != "sgd");
    EXPECT_EQ(has(".exp_avg_sq\""), two);
    EXPECT_EQ(has(".exp_avg_sq.scales\""), two && kind.moments == "U8");
    EXPECT_TRUE(has("\"dtype\":\"" + kind.moments + "\"") || kind.name == "sgd");
    EXPECT_EQ(summary.find("moments_change_numerics")->as_bool(), kind.moments != "F32");
  }
}

TEST(OptimizerKindCommand, ResumingWithAnotherIsRefusedAndNamed) {
  RunFolder folder;
  ASSERT_EQ(folder.train({"train.iterations=2"}).exit_code, 0);
  CommandResult other = folder.train({"train.iterations=4", "optimizer.kind=lion"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.errors, AllOf(HasSubstr("optimizer.kind"), HasSubstr("\"adamw\" there"),
                                  HasSubstr("\"lion\" here")));
}

TEST(OptimizerKindCommand, SmallMomentsAreSaidToChangeNumericsAndKeptApart) {
  RunFolder folder;
  CommandResult shown = folder.train({"optimizer.moments=8bit"}, {"--print-config"});
  EXPECT_THAT(shown.output, HasSubstr("moments = \"8bit\"  # changes numerics"));
  shown = folder.train({}, {"--print-config"});
  EXPECT_THAT(shown.output, HasSubstr("moments = \"fp32\"\n"));
  CommandResult run = folder.train({"train.iterations=2", "optimizer.moments=8bit"});
  ASSERT_EQ(run.exit_code, 0) << run.errors;
  EXPECT_THAT(run.errors, HasSubstr("changes numerics"));
  CommandResult other = folder.train({"train.iterations=4", "optimizer.moments=bf16"});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.errors, AllOf(HasSubstr("optimizer.moments"), HasSubstr("\"8bit\" there")));
}

TEST(OptimizerKindCommand, UnknownOnesAreRefusedWithASuggestion) {
  RunFolder folder;
  CommandResult result = folder.train({"optimizer.kind=adamv"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, AllOf(HasSubstr("did you mean \"adamw\"?"), HasSubstr("\"lion\"")));
  EXPECT_FALSE(folder.exists("out"));
}

}  // namespace
}  // namespace stagecoach
