#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/file.h"
#include "tests/core/temporary_folder.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

#if STAGECOACH_CUDA
constexpr const char* kNoCuda = "none of these libraries opens: libstagecoach_absent.so";
#else
constexpr const char* kNoCuda = "-DSTAGECOACH_CUDA=ON";
#endif
#if STAGECOACH_HIP
constexpr const char* kNoHip = "none of these libraries opens: libstagecoach_absent.so";
#else
constexpr const char* kNoHip = "-DSTAGECOACH_HIP=ON";
#endif

void expect_refusal(const std::vector<std::string>& arguments, const std::string& message) {
  CommandResult result = run_command(arguments);
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_EQ(result.signal, 0);
  EXPECT_THAT(result.errors, HasSubstr(message));
  EXPECT_THAT(result.output, IsEmpty());
  // One line: a refusal, not a chain of causes.
  EXPECT_EQ(result.errors.find('\n'), result.errors.size() - 1) << result.errors;
}

TEST(CommandLine, HelpNamesEveryCommand) {
  CommandResult result = run_command({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* name : {"devices", "topology", "bench", "train", "eval", "generate", "report"}) {
    EXPECT_THAT(result.output, HasSubstr(std::string("\n  ") + name + " "));
  }
  EXPECT_THAT(result.output, testing::Not(HasSubstr("not in this version")));
  CommandResult nothing = run_command({});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_THAT(nothing.errors, HasSubstr("usage: stagecoach COMMAND"));
}

TEST(CommandLine, EveryCommandHasASummaryOptionsAndExamples) {
  for (const char* name : {"devices", "topology", "bench", "train", "eval", "generate", "report"}) {
    CommandResult result = run_command({name, "--help"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.output, HasSubstr(std::string("stagecoach ") + name + ": "));
    EXPECT_THAT(result.output, HasSubstr("examples:\n  stagecoach " + std::string(name)));
    EXPECT_THAT(result.output, HasSubstr("--json"));
  }
}

TEST(CommandLine, VersionNamesCommitBackendsAndTargets) {
  CommandResult text = run_command({"--version"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.output, HasSubstr("stagecoach 0."));
  EXPECT_THAT(text.output, HasSubstr("commit "));
  EXPECT_THAT(text.output, HasSubstr("backends: cpu"));
  EXPECT_THAT(text.output, HasSubstr("targets: "));
  Result<Json> json = Json::parse(run_command({"--version", "--json"}).output);
  ASSERT_TRUE(json.is_ok());
  EXPECT_EQ(json->find("backends")->items()[0].as_string(), "cpu");
}

TEST(CommandLine, UsageErrorsExitWithOneAndNameTheNearest) {
  expect_refusal({"trian"}, "unknown command 'trian'; did you mean 'train'?");
  expect_refusal({"xyzzy"}, "unknown command 'xyzzy'; see stagecoach --help");
  expect_refusal({"--verison"}, "unknown option '--verison'");
  expect_refusal({"train", "--confg", "x"}, "unknown option '--confg'; did you mean '--config'?");
  expect_refusal({"train", "-x"}, "unknown option '-x'");
  expect_refusal({"train"}, "nothing to train");
  expect_refusal({"train", "--config"}, "--config");
  expect_refusal({"report"}, "DIR is required");
  expect_refusal({"report", "a", "b"}, "'b' is one argument too many");
  expect_refusal({"eval", "--model", "m"}, "--data is required");
  expect_refusal({"generate", "--model", "m", "--prompt", "x", "--tokens", "many"},
                 "--tokens is 'many'; it must be a whole number");
  expect_refusal({"train", "--model", "a", "--model", "b"}, "--model is given twice; give it once");
  expect_refusal({"train", "--model=a", "--model", "b"}, "--model is given twice; give it once");
  expect_refusal({"train", "--config", "/nowhere/run.toml"}, "/nowhere/run.toml");
}

TEST(CommandLine, JsonAnswersUsageErrorsToo) {
  for (std::vector<std::string> arguments :
       {std::vector<std::string>{"devices", "--json", "--wrong"},
        {"report", "--json"},
        {"train", "--json"},
        {"train", "--json", "--wrong"},
        {"train", "--config", "/nowhere/run.toml", "--json"},
        {"generate", "--model", "m", "--tokens", "x", "--json"}}) {
    CommandResult result = run_command(arguments);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output, testing::StartsWith("{\"error\":"));
    EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  }
}

TEST(CommandLine, ClosedStreamsNeverBecomeFiles) {
  TemporaryFolder folder;
  std::string list = folder.file("list");
  std::string shell = fmt::format("'{}' devices >&- 2>&-; '{}' --version >'{}' 2>&-",
                                  STAGECOACH_COMMAND, STAGECOACH_COMMAND, list);
  ASSERT_EQ(std::system(shell.c_str()), 0);
  EXPECT_THAT(*read_file(list), testing::StartsWith("stagecoach"));
}

TEST(CommandLine, EmptyValuesAreRefused) {
  expect_refusal({"train", "--config", "run.toml", "--devices", ""}, "--devices is ''");
}

TEST(CommandLine, BadEnvironmentIsRefusedByName) {
  CommandResult result = run_command({"devices"}, ".", {{"STAGECOACH_THREADS", "many"}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr("STAGECOACH_THREADS is 'many'"));
  CommandResult json = run_command({"devices", "--json"}, ".", {{"STAGECOACH_THREADS", "many"}});
  EXPECT_TRUE(Json::parse(json.output).is_ok()) << json.output;
  EXPECT_THAT(run_command({"--help-environment"}).output, HasSubstr("STAGECOACH_THREADS"));
}

TEST(CommandLine, OutputThatCannotBeWrittenIsAFailure) {
  std::string command = std::string(STAGECOACH_COMMAND) + " devices --json >/dev/full 2>/dev/null";
  int status = std::system(command.c_str());
  EXPECT_EQ(WEXITSTATUS(status), 1);
}

TEST(Devices, ListsWhatIsThereAndWhyOthersAreAbsent) {
  CommandResult result = run_command({"devices", "--json"}, ".", no_cards());
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  Result<Json> json = Json::parse(result.output);
  ASSERT_TRUE(json.is_ok());
  const Json& device = json->find("devices")->items().at(0);
  EXPECT_EQ(device.find("id")->as_string(), "cpu:0");
  EXPECT_EQ(device.find("backend")->as_string(), "cpu");
  EXPECT_TRUE(device.find("memory_bytes")->is_integer());
  ASSERT_EQ(json->find("absent")->items().size(), 2u);
  EXPECT_THAT(json->find("absent")->items()[0].find("reason")->as_string(), HasSubstr(kNoCuda));
  EXPECT_THAT(json->find("absent")->items()[1].find("reason")->as_string(), HasSubstr(kNoHip));
  EXPECT_THAT(run_command({"devices"}, ".", no_cards()).output, HasSubstr("cuda      absent"));
}

// What is wrong with a device string is wrong on every machine; what is absent is named.
TEST(Devices, BadCardStringsAreRefusedWithoutACard) {
#if STAGECOACH_CUDA
  for (const char* spec : {"cuda:0x", "cuda:x", "cuda:-1", "cuda:0x99", "cuda:0[libraries=maybe]",
                           "cuda:0[memry=3]", "cuda:0[memory=0]"}) {
    CommandResult result = run_command({"devices", "--devices", spec}, ".", no_cards());
    EXPECT_EQ(result.exit_code, 1) << spec << ": " << result.errors;
    EXPECT_THAT(result.errors, HasSubstr(spec));
  }
  CommandResult absent = run_command({"devices", "--devices", "cpu:1,cuda:3"}, ".", no_cards());
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.errors, HasSubstr("device 'cuda:3'"));
#endif
}

TEST(CommandLine, ASignalEndsAnyCommandWithTheContractsCode) {
  for (int signal : {SIGINT, SIGTERM}) {
    RunningCommand command(
        {"simulate", "--schedule", "paci", "--stages", "8", "--microbatches", "300000", "--json"},
        ".");
    usleep(300'000);
    command.send(signal);
    CommandResult result = command.wait();
    EXPECT_EQ(result.exit_code, 130);
    EXPECT_EQ(result.signal, 0);
    Result<Json> json = Json::parse(result.output);
    ASSERT_TRUE(json.is_ok()) << result.output;
    EXPECT_EQ(number(*json, "exit_code"), 130);
  }
}

TEST(CommandLine, InterruptedWorkIsAnObjectToo) {
  RunFolder folder;
  Json model = folder.json("model.json");
  model["vocab_size"] = 256;  // no separator, which would end a text
  folder.write("model.json", model.dump());
  ASSERT_EQ(folder.train({"train.iterations=1"}).exit_code, 0);
  std::string text;
  while (text.size() < 20'000'000) text += folder.read("train.txt");
  folder.write("long.txt", text);
  const std::vector<std::string> commands[] = {
      {"eval", "--model", "out/checkpoint", "--data", "long.txt", "--json"},
      {"generate", "--model", "out/checkpoint", "--prompt", "a", "--tokens", "1000000", "--json"}};
  for (const std::vector<std::string>& arguments : commands) {
    RunningCommand command(arguments, folder.path());
    usleep(1'000'000);
    command.send(SIGINT);
    CommandResult result = command.wait();
    ASSERT_EQ(result.exit_code, 130) << arguments[0] << ": " << result.errors;
    Result<Json> json = Json::parse(result.output);
    ASSERT_TRUE(json.is_ok()) << result.output;
    EXPECT_EQ(number(*json, "exit_code"), 130);
    EXPECT_THAT(json->find("error")->as_string(), HasSubstr("interrupted"));
  }
}

TEST(Devices, SaysHowCopiesBetweenDevicesGo) {
  CommandResult result = run_command({"devices", "--devices", "cpu:2", "--verbose", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  Result<Json> json = Json::parse(result.output);
  ASSERT_TRUE(json.is_ok());
  ASSERT_EQ(json->find("links")->items().size(), 2u);
  EXPECT_TRUE(json->find("links")->items()[0].find("is_peer_to_peer")->as_bool()) << result.output;
  CommandResult off = run_command({"devices", "--devices", "cpu:2", "--verbose"}, ".",
                                  {{"STAGECOACH_PEER", "off"}});
  EXPECT_THAT(off.output, HasSubstr("cpu:1 -> cpu:0  through the host: turned off by"));
  CommandResult bad = run_command({"devices"}, ".", {{"STAGECOACH_PEER", "maybe"}});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.errors, HasSubstr("set one of auto, on, off"));
}

TEST(Devices, OpensADeviceStringAndNamesWhatServesEachOp) {
  CommandResult result =
      run_command({"devices", "--devices", "cpu:3[memory=8M]", "--verbose", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  Result<Json> json = Json::parse(result.output);
  ASSERT_TRUE(json.is_ok());
  ASSERT_EQ(json->find("devices")->items().size(), 3u);
  const Json& last = json->find("devices")->items()[2];
  EXPECT_EQ(last.find("id")->as_string(), "cpu:2");
  EXPECT_EQ(last.find("memory_bytes")->as_integer(), 8 << 20);
  EXPECT_THAT(last.find("ops")->find("matmul")->as_string(), Not(IsEmpty()));
}

TEST(Devices, RefusesWhatItCannotOpen) {
  EXPECT_EQ(run_command({"devices", "--devices", "cpu:0"}).exit_code, 1);
  EXPECT_EQ(run_command({"devices", "--devices", "cpu:2[memry=4M]"}).exit_code, 1);
  CommandResult absent = run_command({"devices", "--devices", "cuda:0"});
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.errors, HasSubstr("cuda"));
  CommandResult json = run_command({"devices", "--devices", "cuda:0", "--json"});
  EXPECT_EQ(json.exit_code, 2);
  Result<Json> error = Json::parse(json.output);
  ASSERT_TRUE(error.is_ok()) << json.output;
  EXPECT_EQ(error->find("exit_code")->as_integer(), 2);
}

}  // namespace
}  // namespace stagecoach
