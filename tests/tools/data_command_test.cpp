// Data of every kind, as a user of the command meets it.
#include <cstdlib>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/command_runner.h"
#include "tests/train/token_file_image.h"

namespace stagecoach {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Records of unequal length: 7 prompts with completions.
std::string records() {
  std::string text;
  for (int i = 0; i < 7; ++i) {
    text +=
        fmt::format("{{\"prompt\": \"{} plus {}\", \"completion\": \" = {}\"}}\n", i, 2 * i, 3 * i);
  }
  return text;
}

/// Targets of those records: completions and separators.
int64_t targets_of_record(int i) {
  return static_cast<int64_t>(fmt::format(" = {}", 3 * i).size()) + 1;
}

/// The text of `train.txt` as ids of 16 bits.
std::string as_bare_ids(const std::string& text) {
  std::string ids;
  for (char byte : text) {
    ids += byte;
    ids += '\0';
  }
  return ids;
}

class DataCommand : public testing::Test {
 protected:
  DataCommand() { folder_.write("sums.jsonl", records()); }

  std::string train(const std::string& out, std::vector<std::string> settings) {
    settings.push_back("output.dir=" + out);
    CommandResult result = folder_.train(settings);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    errors_ = result.errors;
    return folder_.json(out + "/summary.json").find("weights_sha256")->as_string();
  }
  void expect_refusal(const std::vector<std::string>& settings,
                      const testing::Matcher<std::string>& message) {
    CommandResult result = folder_.train(settings);
    EXPECT_EQ(result.exit_code, 1) << result.errors;
    EXPECT_EQ(result.signal, 0);
    EXPECT_THAT(result.errors, message);
    EXPECT_FALSE(folder_.exists("out")) << "something was written";
  }

  RunFolder folder_;
  std::string errors_;
};

// Field report 81: tokens are what was to be predicted, without prompts and padding.
TEST_F(DataCommand, RecordsTrainOnTheirCompletionsAlone) {
  // Long enough for every record, so that an iteration of seven sequences is an epoch.
  train("out", {"data.train=sums.jsonl", "data.validation=sums.jsonl", "data.sequence=32",
                "train.batch=7", "train.microbatches=1", "train.iterations=4", "data.packing=pad"});
  int64_t targets = 0;
  for (int i = 0; i < 7; ++i) targets += targets_of_record(i);
  Json summary = folder_.json("out/summary.json");
  EXPECT_EQ(summary.find("packing")->as_string(), "pad");
  EXPECT_EQ(summary.find("tokens")->as_integer(), 4 * targets);
  EXPECT_NEAR(number(summary, "target_fraction"), static_cast<double>(targets) / (7 * 32), 1e-9);
  std::vector<Json> lines = RunFolder::json_lines(folder_.read("out/metrics.jsonl"));
  EXPECT_EQ(lines[2].find("tokens")->as_integer(), 3 * targets);
  EXPECT_THAT(errors_, HasSubstr("7 sequences of one document each"));

  CommandResult eval = run_command(
      {"eval", "--model", "out/checkpoint", "--data", "sums.jsonl", "--sequence", "32", "--json"},
      folder_.path());
  ASSERT_EQ(eval.exit_code, 0) << eval.errors;
  Json json = *Json::parse(eval.output);
  EXPECT_EQ(json.find("tokens")->as_integer(), targets);
  // Evaluation packs documents, which changes nothing but rounding.
  EXPECT_NEAR(number(json, "loss"), number(summary, "validation_loss"), 1e-5);
}

// The same targets in fewer sequences; validation on text beside it.
TEST_F(DataCommand, RecordsArePackedByThemselves) {
  std::vector<std::string> settings = {
      "data.train=sums.jsonl", "data.validation=train.txt", "data.sequence=32", "train.epochs=4",
      "train.batch=2",         "train.microbatches=2",      "devices.use=cpu:2"};
  train("packed", settings);
  EXPECT_THAT(errors_, HasSubstr("sequences that hold 7 whole documents"));
  Json packed = folder_.json("packed/summary.json");
  EXPECT_EQ(packed.find("packing")->as_string(), "documents");
  settings.push_back("data.packing=pad");
  train("padded", settings);
  Json padded = folder_.json("padded/summary.json");
  EXPECT_GE(number(packed, "target_fraction"), 1.7 * number(padded, "target_fraction"));
  EXPECT_LE(number(packed, "iterations"), number(padded, "iterations") / 1.7);
  EXPECT_EQ(packed.find("tokens")->as_integer(), padded.find("tokens")->as_integer());
}

// The same ids give the same run, whatever kind of file holds them.
TEST_F(DataCommand, KindsOfFilesThatHoldTheSameIdsTrainAlike) {
  std::string text = folder_.read("train.txt");
  folder_.write("bare.bin", as_bare_ids(text));
  TokenFileImage image;
  image.bits = 32;
  image.vocabulary = 257;
  for (unsigned char byte : text) image.ids.push_back(byte);
  folder_.write("whole.bin", image.bytes());
  std::string plain = train("plain", {"data.validation=[]"});
  EXPECT_EQ(train("bare", {"data.train=bare.bin", "data.validation=[]"}), plain);
  EXPECT_THAT(errors_, HasSubstr("'bare.bin' has no header"));
  EXPECT_EQ(train("whole", {"data.train=whole.bin", "data.validation=[]"}), plain);
  EXPECT_THAT(errors_, Not(HasSubstr("has no header")));
}

// Field report 51: the draw goes on where it was, across epochs, on other devices.
TEST_F(DataCommand, ResumedRunsDrawTheSameRecords) {
  std::vector<std::string> settings = {"data.train=sums.jsonl", "data.validation=[]",
                                       "data.sequence=8", "optimizer.decay=constant"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), settings.begin(), settings.end());
    return more;
  };
  std::string straight = train("straight", with({"train.iterations=20"}));
  train("parts", with({"train.iterations=9"}));
  EXPECT_EQ(train("parts", with({"train.iterations=20", "devices.use=cpu:3"})), straight);
  EXPECT_EQ(folder_.json("parts/summary.json").find("tokens")->as_integer(),
            folder_.json("straight/summary.json").find("tokens")->as_integer());

  folder_.write("sums.jsonl", records() + "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  CommandResult changed = folder_.train(with({"train.iterations=30", "output.dir=parts"}));
  EXPECT_EQ(changed.exit_code, 1);
  EXPECT_THAT(changed.errors, HasSubstr("sha256 of the training tokens"));
}

TEST_F(DataCommand, EpochsAreWholePassesOverTheRecords) {
  train("out", {"data.train=sums.jsonl", "data.validation=[]", "data.sequence=32", "train.batch=4",
                "train.microbatches=2", "train.epochs=3", "data.packing=pad"});
  // 21 records, four at a time.
  EXPECT_EQ(folder_.json("out/summary.json").find("iterations")->as_integer(), 6);
}

// Field reports 32, 33, 35, 72 and 74: before anything is written.
TEST_F(DataCommand, RefusesBadDataBeforeTheRun) {
  folder_.write("big.bin", std::string("\1\0\2\0\1\1\2\1", 8));
  expect_refusal({"data.train=big.bin", "data.sequence=2"},
                 AllOf(HasSubstr("data.train"), HasSubstr("'big.bin'"), HasSubstr("id 257"),
                       HasSubstr("token 2"), HasSubstr("vocabulary is 257")));
  folder_.write("line.jsonl", "{\"text\": \"a b c d\"}\n\n{\"txt\": \"e\"}\n");
  expect_refusal({"data.train=line.jsonl"},
                 AllOf(HasSubstr("'line.jsonl' line 3"), HasSubstr("\"txt\"")));
  folder_.write("ask.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}\n");
  expect_refusal({"data.train=ask.jsonl"}, HasSubstr("holds anything to be predicted"));
  folder_.write("odd.bin", "abc");
  expect_refusal({"data.validation=odd.bin"},
                 AllOf(HasSubstr("data.validation"), HasSubstr("odd")));
  expect_refusal({"data.train=[\"train.txt\", \"big.bin\"]"}, HasSubstr("unknown tokenizer"));
  expect_refusal(
      {"data.tokenizer=nowhere"},
      AllOf(HasSubstr("stagecoach-prepare --tokenizer \"nowhere\""), HasSubstr("train.txt")));
  expect_refusal({"data.packing=tight"}, HasSubstr("\"auto\", \"stream\", \"pad\", \"documents\""));
}

TEST_F(DataCommand, RecordsWithoutTargetsAreLeftOutWithAWarning) {
  folder_.write("mixed.jsonl",
                "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}\n"
                "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": "
                "\"assistant\", \"content\": \"hello\"}]}\n");
  train("out",
        {"data.train=mixed.jsonl", "data.validation=[]", "data.sequence=32", "train.iterations=2"});
  EXPECT_THAT(errors_, AllOf(HasSubstr("1 of 2 documents have nothing to be predicted"),
                             HasSubstr("'mixed.jsonl' document 1")));
}

TEST_F(DataCommand, PackingIsChosenByTheUserWhereItMatters) {
  std::vector<std::string> settings = {"data.train=sums.jsonl", "data.validation=[]",
                                       "data.sequence=32", "train.iterations=2"};
  settings.push_back("data.packing=pad");
  train("pad", settings);
  settings.back() = "data.packing=stream";
  train("stream", settings);
  EXPECT_EQ(folder_.json("stream/summary.json").find("packing")->as_string(), "stream");
  // Whole sequences: what is not to be predicted are prompts alone.
  EXPECT_GT(number(folder_.json("stream/summary.json"), "target_fraction"),
            number(folder_.json("pad/summary.json"), "target_fraction"));
  settings.back() = "data.packing=pad";
  settings.push_back("output.dir=stream");
  settings.push_back("train.iterations=4");
  EXPECT_THAT(folder_.train(settings).errors, HasSubstr("data.packing is \"stream\" there"));
}

// Prompts and text would be read as bytes, which such a model has never seen.
TEST_F(DataCommand, ModelsOfOtherTokenizersRefuseBytes) {
  folder_.write("bare.bin", as_bare_ids(folder_.read("train.txt")));
  train("out", {"data.train=bare.bin", "data.validation=[]", "train.iterations=2"});
  CommandResult generate =
      run_command({"generate", "--model", "out/checkpoint", "--prompt", "x"}, folder_.path());
  EXPECT_EQ(generate.exit_code, 1);
  EXPECT_THAT(generate.errors, AllOf(HasSubstr("out/checkpoint"), HasSubstr("unknown tokenizer")));
  CommandResult eval =
      run_command({"eval", "--model", "out/checkpoint", "--data", "train.txt"}, folder_.path());
  EXPECT_EQ(eval.exit_code, 1);
  EXPECT_THAT(eval.errors, HasSubstr("stagecoach-prepare"));
  CommandResult tokens =
      run_command({"eval", "--model", "out/checkpoint", "--data", "bare.bin", "--sequence", "16"},
                  folder_.path());
  EXPECT_EQ(tokens.exit_code, 0) << tokens.errors;

  // A Hugging Face folder says it with its tokenizer.json.
  train("bytes", {"data.validation=[]", "train.iterations=2"});
  for (const char* name : {"config.json", "model.safetensors"}) {
    folder_.write(std::string("hf/") + name, folder_.read(std::string("bytes/checkpoint/") + name));
  }
  auto try_prompt = [&] {
    return run_command({"generate", "--model", "hf", "--prompt", "x", "--tokens", "2"},
                       folder_.path());
  };
  EXPECT_EQ(try_prompt().exit_code, 0);
  folder_.write("hf/trainer_state.json", "{\"epoch\": 3}");  // as transformers leaves it
  EXPECT_EQ(try_prompt().exit_code, 0);
  // It is stagecoach-prepare that reads it, which needs a Python.
  folder_.write("hf/tokenizer.json", "{}");
  ASSERT_EQ(::setenv("STAGECOACH_PREPARE_PYTHON", "/nowhere/python", 1), 0);
  CommandResult without = try_prompt();
  ::unsetenv("STAGECOACH_PREPARE_PYTHON");
  EXPECT_EQ(without.exit_code, 1);
  EXPECT_THAT(without.errors, AllOf(HasSubstr("STAGECOACH_PREPARE_PYTHON=/nowhere/python cannot"),
                                    HasSubstr("name a Python")));
  CommandResult wrong =
      run_command({"generate", "--model", "bytes/checkpoint", "--prompt", "x", "--tokenizer", "hf"},
                  folder_.path());
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.errors,
              AllOf(HasSubstr("--tokenizer \"hf\" has the tokenizer.json with sha256"),
                    HasSubstr("trained with the tokenizer \"bytes\"")));
  // Tokens of another one are refused too.
  TokenFileImage image;
  image.vocabulary = 257;
  image.ids.assign(40, 7);
  image.tokenizer = std::string(32, '\x11');
  folder_.write("other.bin", image.bytes());
  CommandResult other =
      run_command({"eval", "--model", "hf", "--data", "other.bin"}, folder_.path());
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.errors, HasSubstr("has the tokenizer.json with sha256 1111"));
}

}  // namespace
}  // namespace stagecoach
