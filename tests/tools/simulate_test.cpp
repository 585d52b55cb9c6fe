#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/stat.h>

#include "core/file.h"
#include "tests/core/temporary_folder.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream("simulate " + text);
  std::vector<std::string> list;
  for (std::string word; stream >> word;) list.push_back(word);
  return list;
}

/// The one JSON object of a run that is expected to work.
Json simulate(const std::string& text, const std::string& folder = ".", int exit_code = 0) {
  CommandResult result = run_command(words(text + " --json"), folder);
  EXPECT_EQ(result.exit_code, exit_code) << text << ": " << result.errors;
  Result<Json> json = Json::parse(result.output);
  EXPECT_TRUE(json.is_ok()) << result.output;
  return json.is_ok() ? *json : Json::object();
}

void expect_refusal(const std::string& text, const std::string& message) {
  CommandResult result = run_command(words(text));
  EXPECT_EQ(result.exit_code, 1) << text;
  EXPECT_THAT(result.errors, HasSubstr(message)) << text;
  EXPECT_EQ(result.output, "") << text;
}

TEST(Simulate, PrintsBothBubblesAndTheOrder) {
  Json json = simulate("--schedule zb-h2 --stages 4 --microbatches 8");
  EXPECT_EQ(number(json, "makespan"), 27);
  EXPECT_EQ(number(json, "span"), 24);
  EXPECT_NEAR(number(json, "bubble_makespan"), 3.0 / 27, 1e-12);
  EXPECT_NEAR(number(json, "bubble_span"), 0, 1e-12);
  EXPECT_EQ(number(json, "closed_form"), 0);
  EXPECT_EQ(json.find("closed_form_definition")->as_string(), "span");
  EXPECT_EQ(number(*json.find("idle"), "fill"), 6);
  EXPECT_EQ(json.find("peak_activations")->items().size(), 4u);
  EXPECT_EQ(json.find("order")->items()[3].items()[1].as_string(), "I0");
  EXPECT_EQ(json.find("drift"), nullptr);
  CommandResult people = run_command(words("--schedule zb-h2 --stages 4 --microbatches 8"));
  EXPECT_THAT(people.output, HasSubstr("idle share by makespan 0.1111, by span 0.0000"));
  EXPECT_THAT(people.output, HasSubstr("r3| F0 I0 F1 I1"));
}

TEST(Simulate, AsynchronousSchedulesPrintVersionsAndDrift) {
  Json json = simulate("--schedule paci --stages 4 --microbatches 16 --accumulation 4");
  EXPECT_EQ(json.find("order")->items()[0].items()[11].as_string(), "F7@1");
  EXPECT_EQ(json.find("drift")->find("max")->items()[0].as_integer(), 1);
  EXPECT_EQ(json.find("versions")->find("forward")->items()[0].items()[15].as_integer(), 3);
  EXPECT_EQ(json.find("versions")->find("backward")->items()[0].items()[15].as_integer(), 3);
  EXPECT_EQ(json.find("weight_versions")->items()[0].as_integer(), 1);
  Json round = simulate(
      "--schedule roundpipe --stages 4 --microbatches 8 --round 4 --forward-stages 2 "
      "--backward-stages 3 --f 1 --b 1");
  EXPECT_EQ(number(round, "makespan"), 13);
  EXPECT_EQ(round.find("order")->items()[0].items()[4].as_string(), "B2:0");
}

TEST(Simulate, TimesAreTaken) {
  EXPECT_EQ(number(simulate("--schedule 1f1b --stages 4 --microbatches 64"), "makespan"), 201);
  EXPECT_EQ(number(simulate("--schedule 1f1b --stages 4 --microbatches 64 --comm 0.25 "
                            "--gate-slack 3"),
                   "makespan"),
            202.5);
  EXPECT_NEAR(number(simulate("--schedule zb-h1 --stages 4 --microbatches 8 --f 1 --i 0.8 --w 1.2"),
                     "span"),
              26.4, 1e-9);
  Json freed = simulate("--schedule zb-h1 --stages 4 --microbatches 8 --free-at-i 0.5");
  EXPECT_EQ(freed.find("peak_activations")->items()[3].as_number(), 2.5);
}

TEST(Simulate, UpdateModesDifferBetweenIterations) {
  std::string zb_h2 = "--schedule zb-h2 --stages 4 --microbatches 8 --iterations 5";
  EXPECT_EQ(number(simulate(zb_h2 + " --update overlap"), "makespan"), 123);
  EXPECT_EQ(number(simulate(zb_h2 + " --update barrier"), "makespan"), 135);
  Json round = simulate(
      "--schedule roundpipe --stages 4 --microbatches 8 --round 4 --forward-stages 2 "
      "--backward-stages 3 --f 1 --b 1 --iterations 10 --update async");
  EXPECT_NEAR(number(round, "bubble_makespan"), 12.0 / 412, 1e-9);
}

TEST(Simulate, ComparesSchedulesInOneTable) {
  Json json = simulate("--compare gpipe,zb-v,interleaved --chunks 2 --stages 4 --microbatches 8");
  const Json::Array& rows = json.find("schedules")->items();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(number(rows[0], "makespan"), 33);
  EXPECT_EQ(number(rows[1], "makespan"), 25.5);
  EXPECT_EQ(number(rows[2], "makespan"), 28.5);
  Json partial = simulate("--compare gpipe,dualpipe --stages 4 --microbatches 7", ".", 5);
  EXPECT_THAT(partial.find("schedules")->items()[1].find("refused")->as_string(),
              HasSubstr("must be at least 8"));
}

TEST(Simulate, CsvIsWrittenAndRead) {
  TemporaryFolder folder;
  Json written =
      simulate("--schedule zb-v --stages 4 --microbatches 8 --csv order.csv", folder.path());
  Result<std::string> csv = read_file(folder.path() + "/order.csv");
  ASSERT_TRUE(csv.is_ok());
  EXPECT_EQ(csv->substr(0, 8), "0F0,0F1,");
  Json read = simulate("--csv order.csv", folder.path());
  EXPECT_EQ(read.dump().substr(0, read.dump().find("closed_form")),
            written.dump().substr(0, written.dump().find("closed_form")));
  EXPECT_EQ(read.find("order")->dump(), written.find("order")->dump());
  std::ofstream(folder.path() + "/bad.csv") << "0F0,0B0\n1F0,1X0\n";
  CommandResult bad = run_command({"simulate", "--csv", "bad.csv"}, folder.path());
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.errors, HasSubstr("bad.csv: line 2, column 5: '1X0'"));
  std::ofstream(folder.path() + "/stuck.csv") << "0B0,0F0\n";
  CommandResult stuck = run_command({"simulate", "--csv", "stuck.csv"}, folder.path());
  EXPECT_EQ(stuck.exit_code, 1);
  EXPECT_THAT(stuck.errors, HasSubstr("stuck.csv: plan deadlocks: device 0"));
}

TEST(Simulate, TraceIsWritten) {
  TemporaryFolder folder;
  simulate("--schedule dualpipe --stages 4 --microbatches 8 --trace t.json", folder.path());
  Result<std::string> text = read_file(folder.path() + "/t.json");
  ASSERT_TRUE(text.is_ok());
  EXPECT_TRUE(Json::parse(*text).is_ok());
  EXPECT_THAT(*text, HasSubstr("F+B"));
}

TEST(Simulate, PlotShowsEverySlotAndTheMemory) {
  TemporaryFolder folder;
  simulate("--schedule zb-v --stages 4 --microbatches 8 --plot t.svg", folder.path());
  Result<std::string> svg = read_file(folder.path() + "/t.svg");
  ASSERT_TRUE(svg.is_ok());
  auto count = [&](const std::string& mark) {
    int found = 0;
    for (size_t at = 0; (at = svg->find(mark, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  EXPECT_EQ(count("<rect"), 4 + 4 * 48);  // a background and F, I, W of 8 by 2 chunks a device
  EXPECT_EQ(count("<polyline"), 4);
  simulate("--schedule dualpipe --stages 4 --microbatches 8 --plot t.html", folder.path());
  EXPECT_THAT(*read_file(folder.path() + "/t.html"), HasSubstr("makespan 26"));
}

TEST(Simulate, PerStageTimes) {
  TemporaryFolder folder;
  std::ofstream(folder.path() + "/times.csv") << "# F,B\n1,2\n2,4\n";
  Json json = simulate("--schedule 1f1b --stages 2 --microbatches 1 --per-stage-times times.csv",
                       folder.path());
  EXPECT_EQ(number(json, "makespan"), 9);
  const std::pair<const char*, const char*> bad[] = {
      {"1,2\n0,2\n", "times.csv: line 2: time 1 is 0"},
      {"1,nan\n", "times.csv: line 1: time 2 is nan"},
      {"1,x\n", "times.csv: line 1: 'x' is no time"},
      {"1\n", "times.csv: line 1: 1 times; write F,B or F,I,W"},
      {"1,2\n1,1,1\n", "times.csv: line 2: 3 times where lines before have 2"},
      {"1,2\n", "times were given for 1 stages; schedule 1f1b has 2"},
      {"", "no times"}};
  for (const auto& [text, message] : bad) {
    std::ofstream(folder.path() + "/times.csv") << text;
    CommandResult result = run_command(
        words("--schedule 1f1b --stages 2 --microbatches 1 --per-stage-times times.csv"),
        folder.path());
    EXPECT_EQ(result.exit_code, 1) << text;
    EXPECT_THAT(result.errors, HasSubstr(message));
  }
}

TEST(Simulate, BadRequestsAreRefusedByName) {
  expect_refusal("", "name a --schedule");
  expect_refusal("--schedule 1f1b", "give --stages and --microbatches");
  expect_refusal("--schedule 1f2b --stages 2 --microbatches 2", "did you mean '1f1b'?");
  expect_refusal("--schedule interleaved --stages 4 --microbatches 2",
                 "schedule interleaved: microbatches is 2; it must be at least 4");
  expect_refusal("--schedule gpipe --chunks 2 --stages 4 --microbatches 2",
                 "schedule gpipe has no parameter chunks");
  expect_refusal("--schedule 1f1b --stages -1 --microbatches 2", "--stages is -1");
  expect_refusal("--schedule 1f1b --stages 2 --microbatches 99999999999",
                 "--microbatches is 99999");
  expect_refusal("--schedule 1f1b --stages 2 --microbatches 2 --f 0", "--f is 0; a time must be");
  expect_refusal("--schedule 1f1b --stages 2 --microbatches 2 --b -1", "--i is -0.5");
  expect_refusal("--schedule 1f1b --stages 2 --microbatches 2 --f inf", "--f is 'inf'");
  expect_refusal("--schedule 1f1b --stages 2 --microbatches 2 --b 2 --i 1",
                 "give --b, or --i and --w");
  expect_refusal("--schedule 1f1b --stages 2 --microbatches 2 --i 1", "--i and --w go together");
  expect_refusal("--schedule 1f1b --stages 2 --microbatches 2 --free-at-i 2", "from 0 to 1");
  expect_refusal("--schedule roundpipe --stages 2 --microbatches 2 --update soon",
                 "must be barrier, overlap or async");
  expect_refusal("--schedule gpipe --stages 2 --microbatches 2 --update async",
                 "schedule gpipe has no parameter asynchronous");
  expect_refusal("--csv missing.csv", "missing.csv");
  expect_refusal("--schedule 1f1b --stages 2 --microbatches 2 --plot a.png",
                 "--plot is 'a.png'; it must end in .svg or .html");
  expect_refusal("--schedule 1f1b --stages 8 --microbatches 5000 --plot a.svg",
                 "at most 20000 actions; this run has 80000");
  expect_refusal("--layer-times a.json", "--layer-times goes with --schedule");
  expect_refusal("--compare 1f1b --stages 2 --microbatches 2 --plot a.svg", "writes no files");
}

// What is read back is what was written, chunks of streamed stages too.
TEST(Simulate, EveryOrderComesBackWithItsTimes) {
  TemporaryFolder folder;
  for (const char* name : {"mobius", "looped-bfs", "zb-v", "gpipe", "roundpipe"}) {
    Json written =
        simulate(std::string("--stages 4 --microbatches 8 --csv order.csv --schedule ") + name,
                 folder.path());
    Json read = simulate("--csv order.csv", folder.path());
    EXPECT_EQ(read.find("makespan")->as_number(), written.find("makespan")->as_number()) << name;
  }
}

TEST(Simulate, RefusesFilesBeforeItWritesAny) {
  TemporaryFolder folder;
  const std::string start = "--schedule 1f1b --stages 2 --microbatches 2 ";
  for (const char* files : {"--csv a.csv --plot a.png", "--csv a.csv --plot none/a.svg",
                            "--csv a.csv --trace a.csv", "--csv a.csv --trace none/t.json"}) {
    CommandResult result = run_command(words(start + files), folder.path());
    EXPECT_EQ(result.exit_code, 1) << files;
    EXPECT_FALSE(std::filesystem::exists(folder.path() + "/a.csv")) << files;
  }
  // A device or pipe is no file to replace.
  ASSERT_EQ(::mkfifo((folder.path() + "/pipe").c_str(), 0600), 0);
  CommandResult pipe = run_command(words(start + "--trace pipe"), folder.path());
  EXPECT_EQ(pipe.exit_code, 1);
  EXPECT_THAT(pipe.errors, HasSubstr("device or pipe"));
  EXPECT_TRUE(std::filesystem::is_fifo(folder.path() + "/pipe"));
  // A link stays one.
  std::ofstream(folder.path() + "/real.json") << "old";
  std::filesystem::create_symlink("real.json", folder.path() + "/link.json");
  CommandResult linked = run_command(words(start + "--trace link.json"), folder.path());
  EXPECT_EQ(linked.exit_code, 0) << linked.errors;
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path() + "/link.json"));
  EXPECT_NE(*read_file(folder.path() + "/real.json"), "old");
}

TEST(Simulate, NumbersThatAreNoneAreRefused) {
  for (const char* value : {"nan", "inf", "infinity"}) {
    CommandResult result =
        run_command(words(std::string("--schedule 1f1b --stages 2 --microbatches 2 --f ") + value));
    EXPECT_EQ(result.exit_code, 1) << value;
    EXPECT_THAT(result.errors, HasSubstr(std::string("--f is '") + value + "'"));
  }
}

}  // namespace
}  // namespace stagecoach
