#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <sys/wait.h>
#include <thread>

#include "core/file.h"
#include "tests/core/json_schema.h"
#include "tests/core/temporary_folder.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Slow enough for any host, and short.
const std::vector<std::string> kShort = {
    "--devices", "cpu:2[memory=16M,h2d=64M,d2h=64M]", "--min-time", "0s", "--reps", "3"};

std::vector<std::string> bench(const std::vector<std::string>& more,
                               const std::vector<std::string>& common = kShort) {
  std::vector<std::string> arguments = {"bench", "bandwidth"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  arguments.insert(arguments.end(), common.begin(), common.end());
  return arguments;
}

Json json_of(const CommandResult& result) {
  EXPECT_EQ(std::count(result.output.begin(), result.output.end(), '\n'), 1) << result.output;
  Result<Json> json = Json::parse(result.output);
  EXPECT_TRUE(json.is_ok()) << result.output << result.errors;
  return json.is_ok() ? *json : Json::object();
}

void expect_valid(const Json& json) {
  EXPECT_EQ(JsonSchema::read("bandwidth.schema.json").violation(json), "");
}

TEST(BenchCommand, QuickMeasuresEverythingThatIsAskedFor) {
  CommandResult result = run_command(
      bench(
          {"--filter", "^(copy|duplex|together|compute|optim/adamw/threads1|host/read)", "--json"}),
      ".", no_cards());
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  Json json = json_of(result);
  expect_valid(json);
  std::map<std::string, int> groups;
  for (const Json& one : json.find("results")->items()) {
    ++groups[one.find("group")->as_string()];
    EXPECT_EQ(one.find("status")->as_string(), "ok") << one.dump();
    bool moves_data =
        !std::set<std::string>{"host", "compute", "optim"}.contains(one.find("group")->as_string());
    if (moves_data) {
      EXPECT_EQ(one.find("verify")->find("status")->as_string(), "ok") << one.dump();
    }
  }
  EXPECT_EQ(groups["copy"], 12);
  EXPECT_EQ(groups["duplex"], 2);
  EXPECT_EQ(groups["together"], 3);
  EXPECT_GE(groups["host"], 1);
  EXPECT_EQ(groups["compute"], 2);
  EXPECT_GE(groups["optim"], 1);
}

// Every figure says direction, memory, size, what runs with it, unit, median and spread.
TEST(BenchCommand, FieldReport71FiguresAreLabelled) {
  CommandResult result = run_command(
      bench({"copy", "--sizes", "4K,256K", "--mem", "pinned,pageable", "--json"}), ".", no_cards());
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  Json json = json_of(result);
  expect_valid(json);
  EXPECT_EQ(json.find("results")->items().size(), 16u);
  for (const Json& one : json.find("results")->items()) {
    const Json& params = *one.find("params");
    for (const char* label : {"device", "dir", "kind", "engine", "size"}) {
      EXPECT_NE(params.find(label), nullptr) << label;
    }
    EXPECT_EQ(one.find("unit")->as_string(), "GB/s");
    for (const char* figure : {"n", "median", "p5", "p95", "sigma", "cv"}) {
      EXPECT_NE(one.find("stats")->find(figure), nullptr) << figure;
    }
  }
}

TEST(BenchCommand, TablesAndFilesSayTheSame) {
  TemporaryFolder folder;
  std::string csv = folder.file("out.csv"), out = folder.file("out.json");
  CommandResult result =
      run_command(bench({"duplex", "--csv", csv, "--out", out, "--raw"}), ".", no_cards());
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("duplex/cpu:0/pinned/"));
  EXPECT_THAT(result.output, HasSubstr("GB/s"));
  EXPECT_THAT(*read_file(csv), HasSubstr("\nduplex/cpu:0/pinned/"));
  Result<Json> json = Json::parse(*read_file(out));
  ASSERT_TRUE(json.is_ok());
  expect_valid(*json);
  const Json& quantity = json->find("results")->items()[0].find("quantities")->items()[0];
  EXPECT_EQ(std::ssize(quantity.find("samples")->items()),
            quantity.find("stats")->find("n")->as_integer());
  CommandResult as_csv = run_command(bench({"duplex", "--format", "csv"}), ".", no_cards());
  EXPECT_THAT(as_csv.output, testing::StartsWith("id,group,status,"));
}

TEST(BenchCommand, PlotsShowWhatWasMeasured) {
  TemporaryFolder folder;
  std::string svg = folder.file("plot.svg"), out = folder.file("out.json");
  CommandResult result = run_command(bench({"copy", "--sizes", "16K,64K", "--mem", "pinned",
                                            "--filter", "cpu:0/up", "--plot", svg, "--out", out}),
                                     ".", no_cards());
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  std::string drawing = *read_file(svg);
  EXPECT_THAT(drawing, HasSubstr("copy: cpu:0 by chunk size"));
  EXPECT_THAT(drawing, HasSubstr("<title>up pinned: 0.0"));
  EXPECT_THAT(drawing, HasSubstr("Figures of mock devices say nothing about a card"));
  RunningCommand::Environment plain = no_cards();
  plain["LC_ALL"] = "C";
  CommandResult again = run_command({"bench", "bandwidth", "plot", out}, ".", plain);
  EXPECT_EQ(again.exit_code, 0) << again.errors;
  EXPECT_THAT(again.output, HasSubstr("o up pinned"));
  CommandResult file =
      run_command({"bench", "bandwidth", "plot", out, "--plot", svg, "--json"}, ".", no_cards());
  EXPECT_EQ(json_of(file).find("plot")->as_string(), svg);
  EXPECT_EQ(*read_file(svg), drawing);
}

TEST(BenchCommand, PlansAreListedWithoutMeasuring) {
  CommandResult list = run_command(bench({"copy", "--list"}), ".", no_cards());
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_THAT(list.output, HasSubstr("copy/cpu:1/down/pinned/"));
  CommandResult dry = run_command(bench({"full", "--dry-run"}), ".", no_cards());
  EXPECT_EQ(dry.exit_code, 0);
  EXPECT_THAT(dry.output, HasSubstr("measurements, about"));
  Json json = json_of(run_command(bench({"--list", "--json"}), ".", no_cards()));
  EXPECT_EQ(json.find("groups")->items()[0].find("name")->as_string(), "copy");
}

// No GPU: the host is measured all the same; who asks for a GPU is told why there is none.
TEST(BenchCommand, WithoutACardTheHostIsMeasured) {
  CommandResult host = run_command(bench({"--json"}, {"--filter", "threads1$", "--min-time", "0s",
                                                      "--reps", "3", "--max-mem", "32M"}),
                                   ".", no_cards());
  EXPECT_EQ(host.exit_code, 0) << host.errors;
  Json json = json_of(host);
  expect_valid(json);
  for (const Json& one : json.find("results")->items()) {
    EXPECT_THAT(one.find("group")->as_string(), testing::AnyOf("host", "optim"));
  }
  EXPECT_THAT(json.find("notes")->items()[0].as_string(), HasSubstr("cuda: "));
  CommandResult copy = run_command(bench({"copy", "--json"}, {}), ".", no_cards());
  EXPECT_EQ(copy.exit_code, 2);
  EXPECT_THAT(copy.errors, HasSubstr("needs a device"));
  EXPECT_THAT(copy.errors, HasSubstr("--devices cpu:2"));
  EXPECT_EQ(json_of(copy).find("exit_code")->as_integer(), 2);
}

// Of each part its rate and, beside it, what it keeps of its rate alone.
TEST(BenchCommand, OverlapSaysWhatEachPartKeeps) {
  std::string filter = "overlap/(none/both|update/none|update/both)/idle";
  CommandResult result = run_command(
      bench({"overlap", "--filter", filter, "--max-mem", "6M", "--json"}), ".", no_cards());
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  Json json = json_of(result);
  expect_valid(json);
  ASSERT_EQ(json.find("results")->items().size(), 3u);
  const Json& both = json.find("results")->items().back();
  EXPECT_EQ(both.find("id")->as_string(), "overlap/update/both/idle");
  EXPECT_EQ(both.find("params")->find("engine")->as_string(), "copy");
  std::vector<std::string> names;
  for (const Json& one : both.find("quantities")->items()) {
    names.push_back(one.find("name")->as_string());
  }
  EXPECT_THAT(names, testing::ElementsAre("memory", "host", "up", "down", "host_kept", "up_kept",
                                          "down_kept"));
  EXPECT_EQ(both.find("verify")->find("status")->as_string(), "ok");
  // Figures of parts that were hardly active together are no reason to plan otherwise.
  bool is_evidence = result.output.find("short_window") == std::string::npos;
  bool is_said = result.output.find("of the host's memory together") != std::string::npos;
  EXPECT_EQ(is_said, is_evidence) << result.output;
  CommandResult local = run_command(bench({"local", "--json"}), ".", no_cards());
  ASSERT_EQ(local.exit_code, 0) << local.errors;
  expect_valid(json_of(local));
}

TEST(BenchCommand, GatesDecideTheExitCode) {
  std::string id;
  CommandResult list = run_command(bench({"duplex", "--list"}), ".", no_cards());
  id = list.output.substr(0, list.output.find('\n'));
  EXPECT_EQ(
      run_command(bench({"duplex", "--fail-below", id + "=0.001"}), ".", no_cards()).exit_code, 0);
  CommandResult failed =
      run_command(bench({"duplex", "--fail-below", id + "=1000"}), ".", no_cards());
  EXPECT_EQ(failed.exit_code, 4);
  EXPECT_THAT(failed.output, HasSubstr("below the gate of 1000"));
}

// Latencies that a gate from below would fail for being good.
TEST(BenchCommand, GatesOfTimesAreRefused) {
  CommandResult list = run_command(bench({"pin", "--max-pinned", "1M", "--list"}), ".", no_cards());
  std::string id = list.output.substr(0, list.output.find('\n'));
  CommandResult refused = run_command(
      bench({"pin", "--max-pinned", "1M", "--filter", "^" + id + "$", "--fail-below", id + "=1"}),
      ".", no_cards());
  EXPECT_EQ(refused.exit_code, 1) << id << refused.output;
  EXPECT_THAT(refused.errors, HasSubstr("where less is better"));
}

TEST(BenchCommand, EveryIdIsMeasuredOnce) {
  for (const char* device : {"cpu:1[memory=1K]", "cpu:1[memory=16M]"}) {
    CommandResult list =
        run_command({"bench", "bandwidth", "copy", "--sizes", "4K,4K", "--depth", "1,1", "--mem",
                     "pinned,pinned", "--list", "--devices", device},
                    ".", no_cards());
    EXPECT_EQ(std::count(list.output.begin(), list.output.end(), '\n'), 2) << list.output;
  }
  CommandResult tiny = run_command(
      {"bench", "bandwidth", "copy", "--list", "--devices", "cpu:1[memory=1K]"}, ".", no_cards());
  std::map<std::string, int> ids;
  for (size_t begin = 0, end = 0; (end = tiny.output.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    EXPECT_EQ(++ids[tiny.output.substr(begin, end - begin)], 1) << tiny.output;
  }
  EXPECT_FALSE(ids.empty());
}

TEST(BenchCommand, FilesThatAreOneAreRefused) {
  for (const char* other : {"--csv", "--baseline", "--save-profile"}) {
    CommandResult result = run_command(
        {"bench", "bandwidth", "quick", "--out", "a.json", other, "./a.json"}, ".", no_cards());
    EXPECT_EQ(result.exit_code, 1) << other;
    EXPECT_THAT(result.errors, HasSubstr("name a file each"));
  }
}

TEST(BenchCommand, ComparesFilesAndBaselines) {
  TemporaryFolder folder;
  std::string out = folder.file("out.json"), faster = folder.file("faster.json");
  ASSERT_EQ(run_command(bench({"duplex", "--out", out, "--raw"}), ".", no_cards()).exit_code, 0);
  CommandResult same = run_command({"bench", "bandwidth", "compare", out, out});
  EXPECT_EQ(same.exit_code, 0) << same.errors;
  EXPECT_THAT(same.output, HasSubstr("duplex/cpu:0/pinned/"));
  // A baseline of a machine that was ten times as fast.
  Result<Json> json = Json::parse(*read_file(out));
  ASSERT_TRUE(json.is_ok());
  std::string text = json->dump();
  for (const char* statistic : {"median", "median_low", "median_high"}) {
    std::string key = fmt::format("\"{}\":0.", statistic);
    for (size_t at = 0; (at = text.find(key, at)) != std::string::npos; at += key.size()) {
      text.replace(at, key.size(), fmt::format("\"{}\":10.", statistic));
    }
  }
  for (size_t at = 0; (at = text.find(",\"samples\":[", at)) != std::string::npos;) {
    text.erase(at, text.find(']', at) - at + 1);
  }
  ASSERT_TRUE(write_file_atomically(faster, text).is_ok());
  CommandResult worse = run_command({"bench", "bandwidth", "compare", faster, out, "--json"});
  EXPECT_EQ(worse.exit_code, 4) << worse.errors;
  EXPECT_EQ(json_of(worse).find("worse")->as_integer(), 2);
  CommandResult below = run_command(bench({"duplex", "--baseline", faster}), ".", no_cards());
  EXPECT_EQ(below.exit_code, 4) << below.errors;
  EXPECT_THAT(below.output, HasSubstr("in the baseline 10"));
}

TEST(BenchCommand, WhatIsNotMeasuredAnyMoreIsWorse) {
  TemporaryFolder folder;
  std::string both = folder.file("both.json"), one = folder.file("one.json");
  std::string other = folder.file("other.json");
  ASSERT_EQ(run_command(bench({"duplex", "--out", both}), ".", no_cards()).exit_code, 0);
  ASSERT_EQ(
      run_command(bench({"duplex", "--filter", "cpu:0", "--out", one}), ".", no_cards()).exit_code,
      0);
  ASSERT_EQ(
      run_command(bench({"copy", "--filter", "cpu:0/up/pinned", "--out", other}), ".", no_cards())
          .exit_code,
      0);
  CommandResult lost = run_command({"bench", "bandwidth", "compare", both, one});
  EXPECT_EQ(lost.exit_code, 4) << lost.output << lost.errors;
  EXPECT_THAT(lost.output, HasSubstr("now missing: worse"));
  CommandResult nothing = run_command({"bench", "bandwidth", "compare", both, other});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_THAT(nothing.errors, HasSubstr(both));
  EXPECT_THAT(nothing.errors, HasSubstr(other));
  CommandResult fewer = run_command(
      bench({"duplex", "--threshold", "900", "--baseline", both},
            {"--devices", "cpu:1[memory=16M,h2d=64M,d2h=64M]", "--min-time", "0s", "--reps", "3"}),
      ".", no_cards());
  EXPECT_EQ(fewer.exit_code, 4) << fewer.errors;
  EXPECT_THAT(fewer.output, HasSubstr("missing, and was ok in the baseline"));
  CommandResult filtered =
      run_command(bench({"duplex", "--threshold", "900", "--filter", "cpu:0", "--baseline", both}),
                  ".", no_cards());
  EXPECT_EQ(filtered.exit_code, 0) << filtered.output << filtered.errors;
  CommandResult apart = run_command(bench({"duplex", "--baseline", other}), ".", no_cards());
  EXPECT_EQ(apart.exit_code, 1);
  EXPECT_THAT(apart.errors, HasSubstr(other));
}

TEST(BenchCommand, RefusesWhatIsWrongBeforeMeasuring) {
  struct Case {
    std::vector<std::string> arguments;
    const char* message;
  };
  const Case cases[] = {
      {{"bench"}, "BENCHMARK is required"},
      {{"bench", "bandwith"}, "did you mean 'bench bandwidth'?"},
      {{"bench", "bandwidth", "quik"}, "did you mean 'quick'?"},
      {{"bench", "bandwidth", "overlp"}, "did you mean 'overlap'?"},
      {{"bench", "bandwidth", "--sizes", "x"}, "--sizes holds 'x'"},
      {{"bench", "bandwidth", "--mem", "managed"}, "--mem holds 'managed'"},
      {{"bench", "bandwidth", "--depth", "0"}, "--depth holds '0'"},
      {{"bench", "bandwidth", "--reps", "0"}, "--reps is 0"},
      {{"bench", "bandwidth", "--min-time", "soon"}, "--min-time is 'soon'"},
      {{"bench", "bandwidth", "--timeout", "1ns"}, "--timeout is '1ns'"},
      {{"bench", "bandwidth", "--verify", "often"}, "it must be end, each or off"},
      {{"bench", "bandwidth", "--format", "xml"}, "it must be table, json or csv"},
      {{"bench", "bandwidth", "host", "--group", "copy"}, "--group is 'copy'; 'host' has host"},
      {{"bench", "bandwidth", "--cv-limit", "0"}, "--cv-limit is 0"},
      {{"bench", "bandwidth", "--seed", "-1"}, "--seed is -1"},
      {{"bench", "bandwidth", "--max-pinned", "0"}, "--max-pinned is '0'"},
      {{"bench", "bandwidth", "--fail-below", "x"}, "ID=VALUE"},
      {{"bench", "bandwidth", "--fail-below", "x=inf"}, "ID=VALUE"},
      {{"bench", "bandwidth", "quick", "more"}, "'more' is one argument too many"},
      {{"bench", "bandwidth", "compare", "one"}, "takes two files"},
      {{"bench", "bandwidth", "compare", "/nowhere/a", "b"}, "/nowhere/a"},
      {{"bench", "bandwidth", "--baseline", "/nowhere/a"}, "/nowhere/a"},
      {{"bench", "bandwidth", "--plot", "a.png"}, "--plot is 'a.png'"},
      {{"bench", "bandwidth", "--plot", "-", "--format", "json"}, "where --format json prints"},
      {{"bench", "bandwidth", "--plot", "-", "--format", "csv"}, "where --format csv prints"},
      {{"bench", "bandwidth", "--plot", "-", "--list"}, "--list measures nothing"},
      {{"bench", "bandwidth", "host", "--plot", "/nowhere/x/a.svg"}, "/nowhere/x"},
      {{"bench", "bandwidth", "plot", "--plot", "a.svg"}, "takes one file"},
      {{"bench", "bandwidth", "plot", "/nowhere/a"}, "/nowhere/a"},
      {{"bench", "bandwidth", "compare", "a", "b", "--plot", "a.svg"}, "compare measures nothing"},
      {{"bench", "bandwidth", "--threshold", "0"}, "--threshold is 0"},
      {{"bench", "bandwidth", "--filter", "(", "--devices", "cpu:1"}, "regular expression"},
      {{"bench", "bandwidth", "--filter", "(a)\\1", "--devices", "cpu:1"}, "refer back"},
      {{"bench", "bandwidth", "--deviecs", "cpu:1"}, "did you mean '--devices'?"},
      {{"bench", "bandwidth", "host", "--out", "/nowhere/x/out.json"},
       "--out '/nowhere/x/out.json' cannot be written: No such file"}};
  for (const Case& one : cases) {
    CommandResult result = run_command(one.arguments, ".", no_cards());
    EXPECT_EQ(result.exit_code, 1) << one.message << result.errors;
    EXPECT_THAT(result.errors, HasSubstr(one.message));
    EXPECT_THAT(result.output, IsEmpty());
  }
}

TEST(BenchCommand, ProfilesAreWhatPlanningAndTrainingTake) {
  TemporaryFolder folder;
  std::string path = folder.file("here.json");
  const std::string devices = "cpu:2[memory=16M,h2d=64M,d2h=32M,flops=1G]";
  CommandResult measured = run_command(
      {"bench", "bandwidth", "--devices", devices, "--min-time", "0s", "--reps", "3", "--max-mem",
       "24M", "--filter", "^(copy|duplex|compute|optim|host/read|overlap)", "--save-profile", path},
      ".", no_cards());
  ASSERT_EQ(measured.exit_code, 0) << measured.errors;
  Result<Json> profile = Json::parse(read_file(path).value());
  ASSERT_TRUE(profile.is_ok());
  EXPECT_EQ(JsonSchema::read("machine_profile.schema.json").violation(*profile), "");
  const Json& card = profile->find("cards")->items()[1];
  EXPECT_EQ(card.find("device")->as_string(), "cpu:1");
  // Exact but for what a busy host adds, which is flagged.
  bool is_exact = profile->find("notes")->items().empty();
  double slack = is_exact ? 0.05 : 1;
  EXPECT_NEAR(number(card, "up_bytes_per_s"), 64.0 * (1 << 20), slack * 64 * (1 << 20));
  EXPECT_NEAR(number(card, "down_bytes_per_s"), 32.0 * (1 << 20), slack * 32 * (1 << 20));
  EXPECT_NEAR(number(card, "flop_per_s"), 1e9, slack * 1e9);
  EXPECT_GE(number(*profile->find("host"), "work_threads"), 1);
  CommandResult planned =
      run_command({"plan", "--model", "gpt2", "--sequence", "64", "--devices",
                   "cpu:2[memory=2G,h2d=64M,d2h=32M,flops=1G]", "--profile", path},
                  ".", no_cards());
  ASSERT_EQ(planned.exit_code, 0) << planned.errors;
  EXPECT_THAT(planned.output, HasSubstr(", measured 20"));
  EXPECT_THAT(planned.output, testing::Not(HasSubstr("measure again")));
  CommandResult simulated = run_command(
      {"plan", "--model", "gpt2", "--sequence", "64", "--devices", "sim:2x" + path + "[memory=2G]"},
      ".", no_cards());
  EXPECT_EQ(simulated.exit_code, 0) << simulated.errors;
}

TEST(BenchCommand, ProfilesThatCannotBeMadeAreRefusedBeforeMeasuring) {
  TemporaryFolder folder;
  std::string path = folder.file("here.json");
  CommandResult copies = run_command(bench({"copy", "--save-profile", path}), ".", no_cards());
  EXPECT_EQ(copies.exit_code, 1);
  EXPECT_THAT(copies.errors, HasSubstr("use quick or full"));
  CommandResult none = run_command({"bench", "bandwidth", "--save-profile", path}, ".", no_cards());
  EXPECT_EQ(none.exit_code, 2);
  CommandResult filtered =
      run_command(bench({"--filter", "copy|optim", "--save-profile", path}), ".", no_cards());
  EXPECT_EQ(filtered.exit_code, 1);
  EXPECT_THAT(filtered.errors, HasSubstr("--save-profile needs results of 'duplex/'"));
  EXPECT_FALSE(read_file(path).is_ok());
}

TEST(BenchCommand, InterruptedItPrintsWhatItHas) {
  RunningCommand command(bench({"copy", "--json", "--sizes", "64K:1M:x2", "--reps", "500"},
                               {"--devices", "cpu:2[memory=16M,h2d=64M,d2h=64M]"}),
                         ".", no_cards());
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  command.send(SIGINT);
  CommandResult result = command.wait();
  EXPECT_EQ(result.exit_code, 130);
  Json json = json_of(result);
  if (json.find("error") != nullptr) return;  // the signal came before anything was measured
  expect_valid(json);
  EXPECT_TRUE(json.find("is_interrupted")->as_bool());
}

TEST(BenchCommand, IsolatedItMeasuresTheSame) {
  std::vector<std::string> copies = {"quick", "--filter", "^(copy|duplex)", "--json"};
  Json plain = json_of(run_command(bench(copies), ".", no_cards()));
  copies.push_back("--isolate");
  CommandResult result = run_command(bench(copies), ".", no_cards());
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  Json isolated = json_of(result);
  expect_valid(isolated);
  auto ids = [](const Json& json) {
    std::vector<std::string> all;
    for (const Json& one : json.find("results")->items()) {
      all.push_back(one.find("id")->as_string());
      EXPECT_EQ(one.find("status")->as_string(), "ok") << one.dump();
    }
    return all;
  };
  EXPECT_EQ(ids(isolated), ids(plain));
  EXPECT_EQ(run_command(bench({"copy", "--isolate"}, {}), ".", no_cards()).exit_code, 2);
  EXPECT_EQ(run_command(bench({"--isolate", "--filter", "nothing"}), ".", no_cards()).exit_code, 1);
}

TEST(BenchCommand, PeerCopiesAreIsolatedByThemselves) {
  CommandResult result = run_command(
      bench({"p2p", "--sizes", "64K", "--filter", "cpu:0/cpu:1", "--json"}), ".", no_cards());
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  Json json = json_of(result);
  expect_valid(json);
  // The proof, both routes, both directions by both routes, latencies of both, and under load.
  ASSERT_EQ(json.find("results")->items().size(), 8u);
  for (const Json& one : json.find("results")->items()) {
    EXPECT_EQ(one.find("verify")->find("status")->as_string(), "ok") << one.dump();
  }
  CommandResult alone =
      run_command({"bench", "bandwidth", "p2p", "--devices", "cpu:1", "--json"}, ".", no_cards());
  EXPECT_EQ(alone.exit_code, 2) << alone.errors;
  EXPECT_EQ(json_of(alone).find("exit_code")->as_integer(), 2);
  EXPECT_THAT(alone.errors, HasSubstr("need two devices of one backend"));
}

/// What an isolated run with `options` prints when `signal` reaches the process that measures
/// `group`; expects exit code 5.
Json with_signal(const std::string& options, const std::string& group, const std::string& signal) {
  TemporaryFolder folder;
  std::string out = folder.file("out.json");
  std::string script = fmt::format(
      R"('{}' bench bandwidth {} --isolate --json --devices \
           'cpu:1[memory=16M,h2d=64M,d2h=64M]' >'{}' 2>/dev/null &
         parent=$!
         while kill -0 $parent; do
           for child in $(cat /proc/$parent/task/$parent/children); do
             if tr '\0' ' ' </proc/$child/cmdline | grep -q 'group {} '; then
               kill -{} $child
               wait $parent
               exit
             fi
           done
         done 2>/dev/null
         exit 99)",
      STAGECOACH_COMMAND, options, out, group, signal);
  int status = std::system(script.c_str());
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 5);
  Result<Json> json = Json::parse(*read_file(out));
  EXPECT_TRUE(json.is_ok());
  if (!json.is_ok()) return Json::object();
  expect_valid(*json);
  return *json;
}

// The process of one group is killed: its results are failed, the other group's are there.
TEST(BenchCommand, AKilledChildCostsItsGroup) {
  Json json = with_signal("quick --filter '^(copy|duplex)'", "copy", "KILL");
  int failed = 0, measured = 0;
  for (const Json& one : json.find("results")->items()) {
    bool is_copy = one.find("group")->as_string() == "copy";
    EXPECT_EQ(one.find("status")->as_string(), is_copy ? "failed" : "ok");
    if (is_copy) {
      EXPECT_THAT(one.find("reason")->as_string(), HasSubstr("signal 9"));
    }
    ++(is_copy ? failed : measured);
  }
  EXPECT_EQ(failed, 6);
  EXPECT_EQ(measured, 1);
}

// Copies of each kind of memory have a process each, although both are called copies.
TEST(BenchCommand, AKilledChildOfSeveralCopiesCostsOne) {
  Json json = with_signal("copy --mem pinned,pageable --sizes 64K --min-time 0s --reps 3", "copy#2",
                          "KILL");
  ASSERT_EQ(json.find("results")->items().size(), 4u);
  for (const Json& one : json.find("results")->items()) {
    bool is_pinned = one.find("id")->as_string().find("/pinned/") != std::string::npos;
    EXPECT_EQ(one.find("status")->as_string(), is_pinned ? "ok" : "failed") << one.dump();
  }
}

// One that does nothing any more is killed long before anybody would give up.
TEST(BenchCommand, AStoppedChildIsKilled) {
  auto start = std::chrono::steady_clock::now();
  Json json = with_signal(
      "copy --mem pinned,pageable --sizes 64K --filter /up/ --min-time 0s --reps 3 --timeout 2s",
      "copy#1", "STOP");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  ASSERT_EQ(json.find("results")->items().size(), 2u);
  EXPECT_EQ(json.find("results")->items()[0].find("status")->as_string(), "timeout");
  EXPECT_EQ(json.find("results")->items()[1].find("status")->as_string(), "ok");
}

// A terminal's interrupt reaches the parent; the process that measures is told by it, and what it
// has is printed. What had no turn is not run, rather than failed.
TEST(BenchCommand, InterruptedIsolatedRunsKeepWhatTheyHave) {
  RunningCommand command(bench({"copy", "--mem", "pinned,pageable", "--isolate", "--json",
                                "--sizes", "64K", "--reps", "1000", "--min-time", "0s"},
                               {"--devices", "cpu:2[memory=16M,h2d=64M,d2h=64M]"}),
                         ".", no_cards());
  std::this_thread::sleep_for(std::chrono::seconds(4));
  command.send(SIGINT);
  CommandResult result = command.wait();
  EXPECT_EQ(result.exit_code, 130);
  Json json = json_of(result);
  if (json.find("error") != nullptr) return;  // the signal came before there was a plan
  expect_valid(json);
  EXPECT_TRUE(json.find("is_interrupted")->as_bool());
  const Json::Array& results = json.find("results")->items();
  ASSERT_EQ(results.size(), 8u);
  for (const Json& one : results) {
    bool is_ok = one.find("status")->as_string() == "ok";
    EXPECT_TRUE(is_ok || one.find("status")->as_string() == "not_run") << one.dump();
    EXPECT_EQ(is_ok, one.find("stats")->find("n")->as_integer() > 0);
    if (is_ok) continue;
    EXPECT_EQ(one.find("reason")->as_string(), "interrupted");
  }
  EXPECT_EQ(results.back().find("status")->as_string(), "not_run");
}

TEST(TopologyCommand, ShowsDevicesAndLinksWithOrWithoutCards) {
  CommandResult none = run_command({"topology", "--json"}, ".", no_cards());
  EXPECT_EQ(none.exit_code, 0) << none.errors;
  Json empty = json_of(none);
  EXPECT_TRUE(empty.find("links")->items().empty());
  EXPECT_FALSE(empty.find("nodes")->items().empty());
  EXPECT_THAT(empty.find("absent")->items()[0].as_string(), HasSubstr("cuda: "));
  Json two = json_of(run_command({"topology", "--devices", "cpu:2", "--json"}));
  ASSERT_EQ(two.find("links")->items().size(), 3u);
  EXPECT_EQ(two.find("links")->items()[0].find("source")->as_string(), "host");
  EXPECT_TRUE(two.find("links")->items()[0].find("bytes_per_s")->is_null());
  EXPECT_EQ(two.find("links")->items()[2].find("kind")->as_string(), "unknown");
  CommandResult text = run_command({"topology", "--devices", "cpu:2"});
  EXPECT_THAT(text.output, HasSubstr("node 0"));
  EXPECT_THAT(text.output, HasSubstr("not on a PCI bus"));
  EXPECT_THAT(text.output, HasSubstr("cpu:0     -         unknown"));
  EXPECT_EQ(run_command({"topology", "--devices", "cpu:0"}).exit_code, 1);
}

}  // namespace
}  // namespace stagecoach
