#include <cmath>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "scheduler/layer_time_file.h"
#include "tests/core/temporary_folder.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

/// 15 equal blocks and a head that is as long as one; no bytes.
constexpr const char* kLayers = R"({"tokens_per_microbatch": 100, "layers": [
  {"name": "block", "repeat": 15, "forward_ms": 10, "backward_ms": 20, "recompute_ms": 0},
  {"name": "head", "forward_ms": 10, "backward_ms": 20, "recompute_ms": 0}]})";
/// Four cards, the last of half the speed; links that nothing here fills.
constexpr const char* kMachine = R"({"name": "box", "cards": [
  {"count": 3, "flop_per_s": 1e14, "memory_bytes": 1e12, "up_bytes_per_s": 1e12,
   "down_bytes_per_s": 1e12},
  {"flop_per_s": 5e13, "memory_bytes": 1e12, "up_bytes_per_s": 1e12, "down_bytes_per_s": 1e12}],
  "host": {"work_bytes_per_s": 1e12}})";

class SimulateLayers : public testing::Test {
 protected:
  SimulateLayers() {
    std::ofstream(folder_.file("times.json")) << kLayers;
    std::ofstream(folder_.file("box.json")) << kMachine;
  }
  CommandResult run(const std::string& devices, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"simulate", "--layer-times", "times.json", "--devices",
                                          devices};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_command(arguments, folder_.path());
  }
  Json answer(const std::string& devices, std::vector<std::string> more, int exit_code = 0) {
    more.emplace_back("--json");
    CommandResult result = run(devices, std::move(more));
    EXPECT_EQ(result.exit_code, exit_code) << result.errors;
    Result<Json> json = Json::parse(result.output);
    EXPECT_TRUE(json.is_ok()) << result.output;
    return json.is_ok() ? *json : Json::object();
  }
  void expect_refusal(const std::string& devices, const std::vector<std::string>& more,
                      const std::string& message) {
    CommandResult result = run(devices, more);
    EXPECT_EQ(result.exit_code, 1) << message;
    EXPECT_THAT(result.errors, HasSubstr(message));
    EXPECT_EQ(result.output, "");
  }
  std::string read(const std::string& name) { return read_file(folder_.file(name)).value(); }

  TemporaryFolder folder_;
};

TEST_F(SimulateLayers, HasTheKeysOfEverySimulation) {
  for (const char* schedule : {"roundpipe", "slidedp", "1f1b", "zb-v", "dualpipe", "mobius"}) {
    Json json = answer("sim:4xrtx4090", {"--schedule", schedule, "--microbatches", "8"});
    for (const char* key :
         {"makespan", "span", "bubble_makespan", "bubble_span", "bubble", "tokens_per_s"}) {
      EXPECT_GE(number(json, key), 0) << schedule << " " << key;
    }
    ASSERT_NE(json.find("closed_form"), nullptr) << schedule;
    EXPECT_TRUE(json.find("closed_form")->is_null()) << schedule;
    EXPECT_GE(number(*json.find("idle"), "drain"), 0) << schedule;
    EXPECT_EQ(json.find("peak_activations")->items().size(), 4u) << schedule;
    EXPECT_FALSE(json.find("weight_versions")->items().empty()) << schedule;
    EXPECT_EQ(json.find("order")->items().size(), 4u) << schedule;
    EXPECT_EQ(json.find("drift"), nullptr) << schedule;
    EXPECT_NE(json.find("lanes")->find("compute"), nullptr) << schedule;
    EXPECT_EQ(json.find("bottleneck")->as_string(), "compute") << schedule;
  }
  Json asynchronous = answer(
      "sim:4xrtx4090", {"--schedule", "roundpipe", "--microbatches", "8", "--update", "async"});
  EXPECT_NE(asynchronous.find("drift")->find("max"), nullptr);
  EXPECT_FALSE(asynchronous.find("versions")->find("forward")->items().empty());
}

// Times are in ms: a step of one device is its work, whichever schedule says so.
TEST_F(SimulateLayers, OneDeviceTakesItsWork) {
  double work = 8 * 16 * 30;
  for (const char* schedule : {"single", "slidedp", "gpipe"}) {
    Json json = answer("sim:1xbox.json",
                       {"--schedule", schedule, "--microbatches", "8", "--update", "barrier"});
    EXPECT_NEAR(number(json, "makespan"), work, 1e-3 * work) << schedule;
    EXPECT_NEAR(number(json, "bubble"), 0, 1e-3) << schedule;
    EXPECT_NEAR(number(json, "tokens_per_s"), 800 / (work / 1000), 1e-3 * 800) << schedule;
  }
}

// Every device runs all layers on its share: two of eight micro-batches each.
TEST_F(SimulateLayers, SlideDpSharesTheBatch) {
  Json json = answer("sim:4xrtx4090",
                     {"--schedule", "slidedp", "--microbatches", "8", "--update", "barrier"});
  EXPECT_NEAR(number(json, "makespan"), 2 * 16 * 30, 1);
  EXPECT_EQ(json.find("order")->items()[3].items()[0].as_string(), "F0:6");
  // Three fast cards and one of half their speed: 4, 4, 4 and 2 of 14.
  json = answer("sim:4xbox.json",
                {"--schedule", "slidedp", "--microbatches", "14", "--update", "barrier"});
  EXPECT_NEAR(number(json, "makespan"), 4 * 16 * 30, 1);
  EXPECT_EQ(json.find("order")->items()[3].items()[0].as_string(), "F0:12");
}

// The slow card's stage gets fewer layers, so that a step follows the sum of speeds.
TEST_F(SimulateLayers, BoundStagesAreCutBySpeed) {
  Json json = answer("sim:4xbox.json",
                     {"--schedule", "gpipe", "--microbatches", "64", "--update", "barrier"});
  EXPECT_EQ(json.find("stages")->dump(), "[[0,4],[5,9],[10,14],[15,15]]");
  // Stages of 150, 150, 150 and, a layer at half the speed, 60 ms.
  EXPECT_NEAR(number(json, "makespan"), 64 * 150 + 150 + 150 + 60, 1);
}

TEST_F(SimulateLayers, MachineProfilesAreTaken) {
  Json json = answer("sim:3xbox.json", {"--schedule", "roundpipe", "--microbatches", "6"});
  EXPECT_THAT(json.find("assumptions")->dump(), HasSubstr("1e+03 GB/s"));
  expect_refusal("sim:5xbox.json", {"--schedule", "roundpipe", "--microbatches", "6"},
                 "5 cards of machine 'box'; it has 1 to 4");
  expect_refusal("sim:2xbox.json,cpu:1", {"--schedule", "roundpipe", "--microbatches", "6"},
                 "a machine profile describes all devices");
  expect_refusal("sim:2xnone.json", {"--schedule", "roundpipe", "--microbatches", "6"},
                 "none.json");
  expect_refusal("sim:2xbox.json[speed=2]", {"--schedule", "roundpipe", "--microbatches", "6"},
                 "unknown option 'speed'");
  CommandResult plan = run_command(
      {"plan", "--model", "gpt2", "--devices", "sim:2xbox.json[memory=20G]"}, folder_.path());
  EXPECT_EQ(plan.exit_code, 0) << plan.errors;
}

TEST_F(SimulateLayers, ComparesInOneTable) {
  Json json = answer(
      "sim:4xrtx4090",
      {"--compare", "gpipe,roundpipe,interleaved,single", "--microbatches", "8", "--chunks", "2"},
      5);
  const Json::Array& rows = json.find("schedules")->items();
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_LT(number(rows[2], "bubble"), number(rows[0], "bubble"));
  EXPECT_GT(number(rows[1], "tokens_per_s"), number(rows[0], "tokens_per_s"));
  EXPECT_THAT(rows[3].find("refused")->as_string(), HasSubstr("one device"));
  CommandResult people = run("sim:4xrtx4090", {"--compare", "gpipe,1f1b", "--microbatches", "8"});
  EXPECT_THAT(people.output, HasSubstr("tokens/s"));
}

TEST_F(SimulateLayers, WritesPlotTraceAndOrder) {
  Json written = answer("sim:4xrtx4090",
                        {"--schedule", "1f1b", "--microbatches", "8", "--update", "barrier",
                         "--plot", "plot.svg", "--trace", "trace.json", "--csv", "order.csv"});
  EXPECT_THAT(read("plot.svg"), HasSubstr("makespan"));
  EXPECT_TRUE(Json::parse(read("trace.json")).is_ok());
  // What is read back takes as long.
  Json back = answer("sim:4xrtx4090", {"--csv", "order.csv"});
  EXPECT_EQ(number(back, "makespan"), number(written, "makespan"));
  EXPECT_EQ(back.find("order")->dump(), written.find("order")->dump());
  EXPECT_EQ(back.find("stages")->dump(), written.find("stages")->dump());
  expect_refusal("sim:3xrtx4090", {"--csv", "order.csv"}, "order.csv: the order is of 16 layers");
  answer("sim:4xrtx4090", {"--schedule", "roundpipe", "--microbatches", "8", "--csv", "slots.csv",
                           "--plot", "plot.html"});
  EXPECT_THAT(read("plot.html"), HasSubstr(" ms"));
  expect_refusal("sim:4xrtx4090", {"--csv", "slots.csv"}, "streams slots");
  // People see the beginning of long orders.
  CommandResult people = run("sim:1xrtx4090", {"--schedule", "gpipe", "--microbatches", "99"});
  EXPECT_THAT(people.output, HasSubstr("… 790 more (--json)"));
}

TEST_F(SimulateLayers, MicroBatchesMayHaveOtherSizes) {
  std::vector<std::string> options = {"--schedule", "gpipe", "--microbatches", "8"};
  Json usual = answer("sim:4xrtx4090", options);
  options.insert(options.end(), {"--microbatch-tokens", "300"});
  Json longer = answer("sim:4xrtx4090", options);
  EXPECT_NEAR(number(longer, "makespan"), 3 * number(usual, "makespan"), 1e-3);
  EXPECT_NEAR(number(longer, "tokens_per_s"), number(usual, "tokens_per_s"), 1e-3);
  options.back() = "0";
  expect_refusal("sim:4xrtx4090", options, "--microbatch-tokens is 0");
  std::ofstream(folder_.file("times.json"))
      << R"({"layers": [{"forward_ms": 1, "backward_ms": 2}]})";
  options.back() = "300";
  expect_refusal("sim:1xrtx4090", options, "add tokens_per_microbatch");
  std::ofstream(folder_.file("times.json"))
      << R"({"layers": [{"forward_ms": 1, "backward_ms": 2, "repeat": 0.5}]})";
  expect_refusal("sim:1xrtx4090", {"--schedule", "gpipe", "--microbatches", "8"}, "repeat is 0.5");
}

TEST_F(SimulateLayers, BoundStagesThatDoNotFitAreRefused) {
  std::ofstream(folder_.file("times.json")) << R"({"layers": [{"name": "block", "repeat": 16,
    "forward_ms": 10, "backward_ms": 20, "recompute_ms": 0, "parameter_bytes": 1e9,
    "activation_bytes": 1e9}]})";
  std::vector<std::string> more = {"--schedule", "gpipe", "--microbatches", "8"};
  CommandResult result = run("sim:4xrtx4090", more);
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.errors, HasSubstr("device sim:0 has 24.00 GiB"));
  EXPECT_THAT(result.errors, HasSubstr("schedule gpipe keeps"));
  EXPECT_EQ(result.output, "");
  // Four layers on each: 4 GB of weights, 8 of sums, 4 for each of 8 micro-batches.
  EXPECT_EQ(run("sim:4xrtx4090[memory=43G]", more).exit_code, 0);
  EXPECT_EQ(run("sim:4xrtx4090[memory=40G]", more).exit_code, 4);
  more[1] = "1f1b";  // as many micro-batches as devices
  EXPECT_EQ(run("sim:4xrtx4090[memory=27G]", more).exit_code, 0);
  EXPECT_EQ(run("sim:4xrtx4090[memory=24G]", more).exit_code, 4);
}

// A fast card behind a slow link holds up those that are not.
TEST_F(SimulateLayers, ACardWhoseLinkHoldsUpTheOthersIsLeftOut) {
  std::ofstream(folder_.file("times.json")) << R"({"layers": [{"name": "block", "repeat": 16,
    "forward_ms": 10, "backward_ms": 20, "parameter_bytes": 1e9, "boundary_bytes": 1e8}]})";
  std::ofstream(folder_.file("box.json")) << R"({"cards": [
    {"flop_per_s": 1.1e14, "memory_bytes": 1e12, "up_bytes_per_s": 1e8, "down_bytes_per_s": 1e8},
    {"flop_per_s": 1e14, "memory_bytes": 1e12, "up_bytes_per_s": 1e12, "down_bytes_per_s": 1e12}],
    "host": {"work_bytes_per_s": 1e12}})";
  Json json = answer("sim:2xbox.json", {"--schedule", "roundpipe", "--microbatches", "4"});
  // 16 layers of 30 ms, four micro-batches, at 1 / 1.1 of the speed; a little for transfers.
  EXPECT_LT(number(json, "step_s"), 1.2 * 16 * 4 * 0.030 * 1.1);
}

TEST_F(SimulateLayers, FilesThatWouldHideOthersAreRefused) {
  std::vector<std::string> more = {"--schedule", "gpipe", "--microbatches", "4", "--csv", "a.csv"};
  more.insert(more.end(), {"--trace", "a.csv.stages"});
  expect_refusal("sim:4xrtx4090", more, "both name 'a.csv.stages'");
  std::filesystem::create_directory(folder_.file("d.csv.stages"));
  more[5] = "d.csv";
  more[7] = "t.json";
  expect_refusal("sim:4xrtx4090", more, "'d.csv.stages', which is a folder");
  EXPECT_FALSE(std::filesystem::exists(folder_.file("d.csv")));
}

// What a run writes is what the simulator reads.
TEST_F(SimulateLayers, WrittenLayerTimesComeBack) {
  LayerTimes times = read_layer_times(folder_.file("times.json")).value();
  times.layers[3].forward_ns = 12345678;
  times.layers[3].boundary_bytes = 77;
  times.hop_ns = 2000;
  std::ofstream(folder_.file("again.json")) << layer_times_to_json(times).dump();
  Result<LayerTimes> again = read_layer_times(folder_.file("again.json"));
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  EXPECT_EQ(layer_times_to_json(*again).dump(), layer_times_to_json(times).dump());
  EXPECT_EQ(again->layers.size(), 16u);
  EXPECT_EQ(again->layers[3].boundary_bytes, 77);
}

}  // namespace
}  // namespace stagecoach
