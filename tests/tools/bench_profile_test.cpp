#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "core/file.h"
#include "tests/core/json_schema.h"
#include "tests/core/temporary_folder.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

const std::string kDevices = "cpu:2[memory=16M,h2d=64M,d2h=32M,flops=1G]";

CommandResult run_bench(const std::vector<std::string>& more, const std::string& folder = ".") {
  std::vector<std::string> arguments = {"bench", "bandwidth"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_command(arguments, folder, no_cards());
}

/// `full` with a profile, of the least that makes one.
CommandResult save_profile(const std::string& path, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {
      "full",
      "--devices",
      kDevices,
      "--filter",
      "^(copy/cpu:./(up|down)/pinned/1M|duplex|optim/adamw/threads1$|p2p)",
      "--min-time",
      "0s",
      "--reps",
      "3",
      "--max-mem",
      "32M",
      "--json",
      "--save-profile",
      path};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_bench(arguments);
}

Json json_of(const std::string& text) {
  Result<Json> json = Json::parse(text);
  EXPECT_TRUE(json.is_ok()) << text;
  return json.is_ok() ? *json : Json::object();
}

Json saved_profile(const std::string& path) {
  Result<std::string> text = read_file(path);
  EXPECT_TRUE(text.is_ok()) << text.status().message();
  Json json = json_of(text.is_ok() ? *text : "{}");
  EXPECT_EQ(JsonSchema::read("machine_profile.schema.json").violation(json), "");
  return json;
}

/// Full runs tell of copies between devices, isolated ones the same without a device of their own.
TEST(BenchCommand, FullProfilesKnowCopiesBetweenDevicesAlsoIsolated) {
  TemporaryFolder folder;
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--isolate"}}) {
    std::string path = folder.file(more.empty() ? "plain.json" : "isolated.json");
    CommandResult result = save_profile(path, more);
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(JsonSchema::read("bandwidth.schema.json").violation(json_of(result.output)), "");
    Json profile = saved_profile(path);
    ASSERT_EQ(profile.find("cards")->items().size(), 2u);
    EXPECT_EQ(profile.find("cards")->items()[1].find("device")->as_string(), "cpu:1");
    EXPECT_EQ(number(profile.find("cards")->items()[0], "memory_bytes"), 16 << 20);
    ASSERT_NE(profile.find("peers"), nullptr);
    ASSERT_EQ(profile.find("peers")->items().size(), 2u);
    for (const Json& peer : profile.find("peers")->items()) {
      EXPECT_GT(number(peer, "direct_bytes_per_s"), 0);
      EXPECT_GT(number(peer, "through_host_bytes_per_s"), 0);
    }
    const Json& machine = *profile.find("measurement")->find("machine");
    EXPECT_EQ(machine.find("cpu:1")->as_string(), "CPU device (paced 1 GFLOP/s)");
    EXPECT_EQ(profile.find("measurement")->find("depth")->as_string(), "full");
  }
  // Nothing to make it of: told before measuring, by the process that plans.
  CommandResult none =
      run_bench({"quick", "--isolate", "--save-profile", folder.file("none.json")});
  EXPECT_EQ(none.exit_code, 2) << none.errors;
  EXPECT_THAT(none.errors, HasSubstr("--save-profile needs a device"));
}

// A driver that takes its process with it: the rest of the profile is there, and says so.
TEST(BenchCommand, CopiesBetweenDevicesOfAKilledProcessDoNotWorkByTheProfile) {
  TemporaryFolder folder;
  std::string path = folder.file("here.json");
  std::string script = fmt::format(
      R"('{}' bench bandwidth full --devices '{}' --save-profile '{}' --min-time 0s --reps 3 \
           --max-mem 32M \
           --filter '^(copy/cpu:./(up|down)/pinned/1M|duplex|optim/adamw/threads1$|p2p)' \
           >/dev/null 2>&1 &
         parent=$!
         while kill -0 $parent; do
           for child in $(cat /proc/$parent/task/$parent/children); do
             if tr '\0' ' ' </proc/$child/cmdline | grep -q 'group p2p'; then
               kill -9 $child
               wait $parent
               exit
             fi
           done
         done 2>/dev/null
         exit 99)",
      STAGECOACH_COMMAND, kDevices, path);
  int status = std::system(script.c_str());
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 5);
  Json profile = saved_profile(path);
  ASSERT_EQ(profile.find("peers")->items().size(), 2u);
  for (const Json& peer : profile.find("peers")->items()) {
    EXPECT_EQ(peer.find("direct_bytes_per_s"), nullptr);
    EXPECT_THAT(peer.find("reason")->as_string(), HasSubstr("ended by signal 9"));
  }
}

TEST(BenchCommand, IsolatedItMeasuresTheGroupThatIsAskedFor) {
  CommandResult one =
      run_bench({"quick", "--isolate", "--group", "duplex", "--devices",
                 "cpu:1[memory=16M,h2d=64M,d2h=64M]", "--min-time", "0s", "--reps", "3", "--json"});
  EXPECT_EQ(one.exit_code, 0) << one.errors;
  EXPECT_EQ(json_of(one.output).find("results")->items().size(), 1u) << one.output;
  CommandResult none = run_bench({"quick", "--isolate", "--group", "urgent", "--devices", "cpu:1"});
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.errors, HasSubstr("--group is 'urgent'"));
}

TEST(BenchCommand, ProfilesAreShownCheckedAndExported) {
  TemporaryFolder folder;
  std::string path = folder.file("here.json"), csv = folder.file("here.csv");
  ASSERT_EQ(save_profile(path).exit_code, 0);
  CommandResult shown = run_bench({"profile", "show", path});
  EXPECT_EQ(shown.exit_code, 0) << shown.errors;
  EXPECT_THAT(shown.output, HasSubstr("cpu:0 to cpu:1"));
  EXPECT_THAT(shown.output, HasSubstr("urgent copies were not measured"));
  Json json = json_of(run_bench({"profile", "show", path, "--json"}).output);
  EXPECT_EQ(json.find("profile")->dump(), saved_profile(path).dump());
  CommandResult exported = run_bench({"profile", "export", path, "--csv", csv});
  EXPECT_EQ(exported.exit_code, 0) << exported.errors;
  EXPECT_THAT(read_file(csv).value(), StartsWith("entry,subject,quantity,unit,value\n"));
  EXPECT_THAT(read_file(csv).value(), HasSubstr("cards[1],cpu:1,up_bytes_per_s,B/s,"));
  std::vector<std::string> check = {"profile", "check",    path,    "--devices",
                                    kDevices,  "--filter", "^copy", "--json"};
  CommandResult same = run_bench(check);
  // A host that is too busy for the pace says so; it is no drift.
  EXPECT_THAT(same.exit_code, AnyOf(0, 5)) << same.output << same.errors;
  EXPECT_THAT(json_of(same.output).find("drifted")->items(), IsEmpty());
  EXPECT_EQ(json_of(same.output).find("sentinels")->items().size(), 4u);
  // A machine whose uploads have become slower, one with other cards, one without.
  check[4] = "cpu:2[memory=16M,h2d=32M,d2h=32M,flops=1G]";
  CommandResult slower = run_bench(check);
  Json drift = json_of(slower.output);
  EXPECT_EQ(slower.exit_code, drift.find("drifted")->items().empty() ? 5 : 4) << slower.errors;
  for (const Json& one : drift.find("sentinels")->items()) {
    bool is_up = one.find("entry")->as_string().ends_with(": up_bytes_per_s");
    EXPECT_THAT(one.find("verdict")->as_string(), AnyOf(is_up ? "drifted" : "holds", "overrun"));
  }
  check[4] = "cpu:2[memory=16M,h2d=64M,d2h=32M,flops=2G]";
  CommandResult other = run_bench(check);
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.errors, HasSubstr("cpu:0 is 'CPU device (paced 1 GFLOP/s)'"));
  check[4] = "cpu:1[memory=16M,flops=1G]";
  CommandResult fewer = run_bench(check);
  EXPECT_EQ(fewer.exit_code, 2);
  EXPECT_THAT(fewer.errors, HasSubstr("device cpu:1 is not here"));
  EXPECT_EQ(run_bench({"profile", "check", path}).exit_code, 2);
}

TEST(BenchCommand, NvbandwidthIsImportedForComparison) {
  TemporaryFolder folder;
  std::string theirs = folder.file("nvb.json"), ours = folder.file("ours.json");
  ASSERT_TRUE(write_file_atomically(theirs, R"({"nvbandwidth": {"version": "v0.8", "testcases": [
    {"name": "host_to_device_memcpy_ce", "status": "Passed", "bandwidth_matrix": [["55.5"]]},
    {"name": "device_to_device_memcpy_read_ce", "status": "Waived"}]}})")
                  .is_ok());
  ASSERT_EQ(run_bench({"copy", "--devices", "cpu:1[memory=16M,h2d=64M,d2h=64M]", "--sizes", "256K",
                       "--min-time", "0s", "--reps", "3", "--out", ours})
                .exit_code,
            0);
  CommandResult table = run_bench({"profile", "import", theirs, ours});
  EXPECT_EQ(table.exit_code, 0) << table.errors;
  EXPECT_THAT(table.output, HasSubstr("device_to_device_memcpy_read_ce (Waived)"));
  Json json = json_of(run_bench({"profile", "import", theirs, "--json"}).output);
  EXPECT_EQ(json.find("pairs")->items()[0].find("theirs")->as_number(), 55.5);
  EXPECT_EQ(json.find("unpaired")->items().size(), 1u);
  CommandResult swapped = run_bench({"profile", "import", ours, theirs});
  EXPECT_EQ(swapped.exit_code, 1);
  EXPECT_THAT(swapped.errors, HasSubstr("'nvbandwidth' is missing"));
  EXPECT_EQ(run_bench({"profile", "import", theirs, theirs}).exit_code, 1);
}

TEST(BenchCommand, ProfileWordsAndFilesAreChecked) {
  TemporaryFolder folder;
  std::string by_hand = folder.file("hand.json");
  ASSERT_TRUE(write_file_atomically(by_hand, R"({"cards": [{"flop_per_s": 1e12, "memory_bytes": 1e9,
          "up_bytes_per_s": 1e9, "down_bytes_per_s": 1e9}], "host": {"work_bytes_per_s": 1e9}})")
                  .is_ok());
  struct Case {
    std::vector<std::string> arguments;
    const char* message;
  };
  const Case cases[] = {
      {{"profile"}, "needs one of: show FILE, check FILE"},
      {{"profile", "shwo", by_hand}, "did you mean 'show'?"},
      {{"profile", "remove", by_hand}, "it has show, check, export, import"},
      {{"profile", "show"}, "is given 0 files; write: show FILE"},
      {{"profile", "import", "a", "b", "c"}, "is given 3 files; write: import NVBANDWIDTH.json"},
      {{"profile", "show", "/nowhere/a.json"}, "/nowhere/a.json"},
      {{"profile", "export", by_hand}, "needs --csv OUT"},
      {{"profile", "export", by_hand, "--csv", by_hand}, "which is the profile itself"},
      {{"profile", "check", by_hand}, "none has 'device'"},
      {{"profile", "check", by_hand, "--isolate"}, "--isolate does nothing"},
      {{"profile", "show", by_hand, "--csv", "x"}, "--csv does nothing for"},
      {{"profle"}, "did you mean 'profile'?"}};
  for (const Case& one : cases) {
    CommandResult result = run_bench(one.arguments);
    EXPECT_EQ(result.exit_code, 1) << one.message << result.errors;
    EXPECT_THAT(result.errors, HasSubstr(one.message));
    EXPECT_THAT(result.output, IsEmpty());
  }
}

TEST(BenchCommand, ProfilesThatCannotBeWrittenAreRefusedBeforeMeasuring) {
  TemporaryFolder folder;
  std::string results = folder.file("results.json");
  ASSERT_TRUE(write_file_atomically(results, "{\"results\": []}").is_ok());
  CommandResult other = save_profile(results);
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.errors, HasSubstr("exists and is no machine profile"));
  EXPECT_EQ(read_file(results).value(), "{\"results\": []}");
  EXPECT_EQ(save_profile("/proc/here.json").exit_code, 1);
  EXPECT_EQ(save_profile(folder.path(), {"--isolate"}).exit_code, 1);
  MountedFolder mounted(folder.file("mounted"), 64 << 10);
  if (!mounted.reason_to_skip().empty()) GTEST_SKIP() << mounted.reason_to_skip();
  CommandResult full = save_profile(folder.file("mounted/here.json"));
  EXPECT_EQ(full.exit_code, 1) << full.errors;
  EXPECT_THAT(full.errors, HasSubstr("No space left"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.file("mounted")));
  mounted.make_read_only();
  CommandResult read_only = save_profile(folder.file("mounted/here.json"));
  EXPECT_EQ(read_only.exit_code, 1);
  EXPECT_THAT(read_only.errors, HasSubstr("Read-only file system"));
}

TEST(BenchCommand, WritesNoProfileUnlessItIsAskedFor) {
  TemporaryFolder folder;
  RunningCommand::Environment environment = no_cards();
  for (const char* name :
       {"HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "TMPDIR"}) {
    environment[name] = folder.path();
  }
  for (const char* suite : {"quick", "full"}) {
    CommandResult result =
        run_command({"bench", "bandwidth", suite, "--devices", kDevices, "--filter",
                     "^(copy/cpu:0/up/pinned/1M|duplex/cpu:0|optim/adamw/threads1$)", "--min-time",
                     "0s", "--reps", "3", "--max-mem", "32M"},
                    folder.path(), environment);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << suite;
  }
}

// Beside FieldReport71FiguresAreLabelled: figures of several copies at once say of what, each has
// its own, and together they are no more than the links can carry.
TEST(BenchCommand, FieldReport71FiguresOfSeveralCopiesAreLabelled) {
  CommandResult result =
      run_bench({"quick", "--devices", "cpu:2[memory=16M,h2d=64M,d2h=64M]", "--filter",
                 "^(duplex|together)", "--min-time", "0s", "--reps", "3", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  Json json = json_of(result.output);
  ASSERT_EQ(json.find("results")->items().size(), 5u);
  for (const Json& one : json.find("results")->items()) {
    const Json& params = *one.find("params");
    bool is_both = params.find("dir")->as_string() == "both";
    EXPECT_EQ(number(*one.find("counted"), "directions"), is_both ? 2 : 1) << one.dump();
    bool is_of_all = params.find("device")->as_string() == "all";
    // The total, every stream, and how alike they are.
    size_t streams = (is_both ? 2 : 1) * (is_of_all ? 2 : 1);
    EXPECT_EQ(one.find("quantities")->items().size(), streams + 2) << one.dump();
    EXPECT_EQ(params.find("kind")->as_string(), "pinned");
    EXPECT_LE(number(*one.find("stats"), "median"), 1.02 * number(one, "limit")) << one.dump();
  }
}

}  // namespace
}  // namespace stagecoach
