#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// Runs that must be refused before they touch the output folder.
class TrainRefusal : public testing::Test {
 protected:
  void expect_refusal(const std::vector<std::string>& settings, int exit_code,
                      const testing::Matcher<std::string>& message) {
    CommandResult result = folder_.train(settings);
    EXPECT_EQ(result.exit_code, exit_code) << result.errors;
    EXPECT_EQ(result.signal, 0);
    EXPECT_THAT(result.errors, message);
    EXPECT_THAT(result.output, IsEmpty());
    EXPECT_FALSE(folder_.exists("out")) << "something was written";
  }
  RunFolder folder_;
};

TEST_F(TrainRefusal, UnreadableEmptyAndShortText) {
  expect_refusal({"data.train=none.txt"}, 1, AllOf(HasSubstr("data.train"), HasSubstr("none.txt")));
  folder_.write("empty.txt", "");
  expect_refusal({"data.train=empty.txt"}, 1, HasSubstr("'empty.txt' is empty"));
  expect_refusal({"data.validation=empty.txt"}, 1,
                 AllOf(HasSubstr("data.validation"), HasSubstr("'empty.txt' is empty")));
  expect_refusal({"data.validation=[\"none.txt\"]"}, 1, HasSubstr("none.txt"));
  expect_refusal({"data.train=."}, 1, HasSubstr("'.'"));
}

// Field report 72: never zero steps with exit 0.
TEST_F(TrainRefusal, FileShorterThanASequenceNamesTokensFoundAndNeeded) {
  for (int size : {1, 15, 16}) {
    folder_.write("short.txt", std::string(static_cast<size_t>(size), 'a'));
    expect_refusal(
        {"data.train=short.txt"}, 1,
        AllOf(HasSubstr("short.txt"), HasSubstr("holds " + std::to_string(size) + " tokens"),
              HasSubstr("need 17")));
  }
  folder_.write("just.txt", std::string(17, 'a'));
  CommandResult result = folder_.train({"data.train=just.txt", "train.iterations=2"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(folder_.json("out/summary.json").find("iterations")->as_integer(), 2);
}

// Field report 80: the equation and the nearest valid values.
TEST_F(TrainRefusal, BatchThatDoesNotDivide) {
  expect_refusal({"train.batch=10", "train.microbatches=4"}, 1,
                 AllOf(HasSubstr("10 = 4 x 2.5"), HasSubstr("train.batch = 8 or 12"),
                       HasSubstr("train.microbatches = 2 or 5")));
  expect_refusal({"train.batch=12", "train.microbatches=4", "train.rounds=3"}, 1,
                 HasSubstr("train.rounds = 2 or 4"));
  expect_refusal({"train.microbatches=0"}, 1, HasSubstr("a whole number from 1"));
}

TEST_F(TrainRefusal, UnknownAndAbsentDevices) {
  expect_refusal({"devices.use=gpu:0"}, 1, HasSubstr("gpu"));
  for (const char* device : {"cuda:0", "hip:0"}) {
    // What to do: build the backend in, or name its library, and what runs meanwhile.
    CommandResult absent =
        run_command(folder_.train_arguments({std::string("devices.use=") + device}), folder_.path(),
                    no_cards());
    EXPECT_EQ(absent.exit_code, 2) << absent.errors;
    EXPECT_THAT(absent.errors, AnyOf(HasSubstr("=ON"), HasSubstr("cpu:1")));
  }
  expect_refusal({"devices.use=cpu:0"}, 1, HasSubstr("cpu:0"));
  expect_refusal({"devices.use=cpu:2[memory=lots]"}, 1, HasSubstr("lots"));
  expect_refusal({"devices.use=cpu:2[flop=1G]"}, 1, HasSubstr("flop"));
  expect_refusal({"devices.use=cpu:2[memory=1M"}, 1, HasSubstr("devices.use"));
}

TEST_F(TrainRefusal, DeviceMemoryTooSmallNamesLayerBytesAndSetting) {
  expect_refusal({"devices.use=cpu:2[memory=64K]"}, 4,
                 AllOf(HasSubstr("cpu:0"), HasSubstr("layer"), HasSubstr("h."), HasSubstr(" bytes"),
                       HasSubstr("memory=")));
  expect_refusal({"devices.memory=64K"}, 4, HasSubstr("cpu:0"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Sanitizers take more address space than any limit of use here leaves.
TEST_F(TrainRefusal, AHostWithoutTheMemoryIsRefusedBeforeAnythingIsAllocated) {
  std::string command =
      "ulimit -v 6000000; cd '" + folder_.path() + "' && '" STAGECOACH_COMMAND "'";
  for (const std::string& argument : folder_.train_arguments(
           {"model.path=gpt2-medium", "devices.use=cpu:1[memory=3G]", "train.iterations=1"})) {
    command += " '" + argument + "'";
  }
  int status =
      std::system(("(" + command + ") >/dev/null 2>'" + folder_.file("errors") + "'").c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 4);
  std::string errors = folder_.read("errors");
  EXPECT_THAT(errors, AllOf(HasSubstr("of host memory"), HasSubstr("training state"),
                            HasSubstr("free by ulimit -v"), HasSubstr("train.microbatches")));
  EXPECT_FALSE(folder_.exists("out"));
}
#endif

// What lies where a checkpoint will be saved is met before training, not after it, and stays.
TEST_F(TrainRefusal, WhatIsInTheWayOfCheckpoints) {
  for (const char* name : {"checkpoint-3", "checkpoint"}) {
    folder_.write(std::string("out/") + name + "/notes.txt", "precious");
    CommandResult result = folder_.train({"train.iterations=3"});
    EXPECT_EQ(result.exit_code, 1) << result.errors;
    EXPECT_THAT(result.errors,
                AllOf(HasSubstr(std::string("out/") + name + "'"), HasSubstr("move it away")));
    EXPECT_FALSE(folder_.exists("out/metrics.jsonl"));
    EXPECT_EQ(folder_.read(std::string("out/") + name + "/notes.txt"), "precious");
    std::filesystem::remove_all(folder_.file("out"));
  }
}

TEST_F(TrainRefusal, FoldersWithNamesThatAreTooLong) {
  std::string deep;
  for (int i = 0; i < 45; ++i) deep += std::string(90, 'd') + "/";
  for (const std::string& name : {std::string(300, 'x'), "new/" + std::string(256, 'x'), deep}) {
    CommandResult result = folder_.train({"output.dir=" + name});
    EXPECT_EQ(result.exit_code, 1) << result.errors;
    EXPECT_THAT(result.errors,
                AllOf(HasSubstr("output.dir"), HasSubstr("at most"), HasSubstr("name a shorter")));
    EXPECT_FALSE(folder_.exists("new"));
  }
}

TEST_F(TrainRefusal, DataThatAreLinksToNowhereAndTextsThatAreTooShort) {
  std::filesystem::create_symlink("../gone/text.txt", folder_.file("link.txt"));
  CommandResult link = folder_.train({"data.train=[\"link.txt\"]"});
  EXPECT_EQ(link.exit_code, 1);
  EXPECT_THAT(link.errors, AllOf(HasSubstr("'link.txt': it is a link to '../gone/text.txt', which "
                                           "is not there"),
                                 HasSubstr("bring that file back or name another")));
  folder_.write("short.txt", "ab");
  CommandResult too_short = folder_.train({"data.train=[\"short.txt\"]"});
  EXPECT_EQ(too_short.exit_code, 1);
  EXPECT_THAT(too_short.errors,
              AllOf(HasSubstr("give more text"), Not(HasSubstr("lower data.sequence"))));
  EXPECT_FALSE(folder_.exists("out"));
}

// The newest without the file that says what it is: an older one is used, and it is replaced.
TEST_F(TrainRefusal, ACheckpointWithoutItsStateIsReplaced) {
  ASSERT_EQ(folder_.train({"train.iterations=4", "output.save_every=2"}).exit_code, 0);
  const std::string expected = folder_.json("out/summary.json").find("weights_sha256")->dump();
  std::filesystem::remove(folder_.file("out/checkpoint-4/trainer_state.json"));
  CommandResult result = folder_.train({"train.iterations=4", "output.save_every=2"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("out/checkpoint-4 is not a whole checkpoint"));
  EXPECT_EQ(folder_.json("out/summary.json").find("weights_sha256")->dump(), expected);
  EXPECT_TRUE(folder_.exists("out/checkpoint-4/trainer_state.json"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Stacks and the allocator's arenas take address space as well: never the end by a signal.
TEST_F(TrainRefusal, LittleAddressSpaceIsEnoughOrRefused) {
  int trained = 0, refused = 0;
  for (int kilobytes = 200'000; kilobytes <= 1'400'000; kilobytes += 100'000) {
    std::string command =
        fmt::format("ulimit -v {}; cd '{}' && '{}'", kilobytes, folder_.path(), STAGECOACH_COMMAND);
    for (const std::string& argument :
         folder_.train_arguments({"devices.use=cpu:4", "train.iterations=2",
                                  fmt::format("output.dir={}", kilobytes)})) {
      command += " '" + argument + "'";
    }
    int status =
        std::system(("(" + command + ") >/dev/null 2>'" + folder_.file("errors") + "'").c_str());
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 256;
    EXPECT_TRUE(code == 0 || code == 4) << kilobytes << ": " << code << folder_.read("errors");
    trained += code == 0;
    refused += code == 4;
  }
  EXPECT_GT(trained, 0);
  EXPECT_GT(refused, 0);
}
#endif

TEST_F(TrainRefusal, ModelsThatCannotStart) {
  expect_refusal({"model.init=weights"}, 1,
                 AllOf(HasSubstr("model.json"), HasSubstr("model.init = \"random\"")));
  expect_refusal({"model.path=gpt2", "model.init=weights"}, 1, HasSubstr("gpt2"));
  expect_refusal({"model.path=openai/gpt2"}, 1, HasSubstr("download"));
  expect_refusal({"data.sequence=33"}, 1, HasSubstr("data.sequence = 32 or less"));
  folder_.write("small.json",
                R"({"model_type": "gpt2", "vocab_size": 255, "n_positions": 32, "n_embd": 16,
                    "n_layer": 1, "n_head": 2})");
  expect_refusal({"model.path=small.json"}, 1, HasSubstr("vocabulary is 255"));
}

TEST_F(TrainRefusal, ModesThisVersionDoesNotHave) {
  expect_refusal({"schedule.update=sometimes"}, 1,
                 AllOf(HasSubstr("overlap"), HasSubstr("async"), HasSubstr("barrier")));
  expect_refusal({"schedule.kind=paci"}, 1, HasSubstr("does not have it yet"));
  expect_refusal({"schedule.kind=dualpipe"}, 1, HasSubstr("simulate only"));
  expect_refusal({"activations.policy=keep"}, 1, HasSubstr("does not have it yet"));
  expect_refusal({"schedule.kind=single"}, 1, HasSubstr("one device"));
}

TEST_F(TrainRefusal, SizesOutsideABoundSchedule) {
  // The model has four layers, the batch two micro-batches.
  expect_refusal({"schedule.kind=interleaved", "devices.use=cpu:3"}, 1,
                 AllOf(HasSubstr("interleaved"), HasSubstr("6 stages"), HasSubstr("4 layers"),
                       HasSubstr("2 devices or fewer")));
  expect_refusal({"schedule.kind=interleaved", "train.microbatches=1"}, 1,
                 AllOf(HasSubstr("schedule.kind = \"interleaved\""), HasSubstr("microbatches is 1"),
                       HasSubstr("train.microbatches = 2 would do")));
  expect_refusal({"schedule.kind=1f1b", "schedule.dispatch=static"}, 1,
                 HasSubstr("schedule.dispatch"));
  expect_refusal({"schedule.kind=gpipe", "schedule.max_stage_layers=1"}, 1,
                 HasSubstr("schedule.max_stage_layers"));
  expect_refusal(
      {"schedule.kind=1f1b", "devices.use=cpu:2[memory=20K]"}, 4,
      AllOf(HasSubstr("schedule 1f1b"), HasSubstr("the largest layer, '"), HasSubstr("memory=")));
}

TEST_F(TrainRefusal, OutputFolderThatCannotBeWritten) {
  MountedFolder mounted(folder_.file("mounted"), 1 << 20);
  if (!mounted.reason_to_skip().empty()) GTEST_SKIP() << mounted.reason_to_skip();
  mounted.make_read_only();
  expect_refusal({"output.dir=mounted"}, 1,
                 AllOf(HasSubstr("output.dir = \"mounted\" cannot be written"),
                       HasSubstr("Read-only file system")));
  expect_refusal({"output.dir=mounted/deep/out"}, 1, HasSubstr("cannot be written"));
  expect_refusal({"output.dir=train.txt"}, 1, HasSubstr("is not a folder"));
}

TEST_F(TrainRefusal, TooLittleDiskForCheckpointsIsFoundBeforeTraining) {
  MountedFolder mounted(folder_.file("mounted"), 100 << 10);
  if (!mounted.reason_to_skip().empty()) GTEST_SKIP() << mounted.reason_to_skip();
  expect_refusal({"output.dir=mounted"}, 1,
                 AllOf(HasSubstr("bytes free; checkpoints need"), HasSubstr("mounted")));
  EXPECT_THAT(folder_.list("mounted"), IsEmpty());
}

TEST_F(TrainRefusal, NeverRefusesAFolderThatIsNotEmpty) {
  folder_.write("used/notes.txt", "mine");
  expect_refusal({"output.dir=used", "output.resume=never"}, 1,
                 AllOf(HasSubstr("output.resume = \"never\""), HasSubstr("not empty")));
  EXPECT_THAT(folder_.list("used"), testing::ElementsAre("notes.txt"));
  expect_refusal({"output.resume=nowhere"}, 1, HasSubstr("holds no checkpoint"));
}

}  // namespace
}  // namespace stagecoach
