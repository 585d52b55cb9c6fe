#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "tests/core/temporary_folder.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

/// The one JSON object of a command that is expected to work.
Json answer(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  CommandResult result = run_command(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  Result<Json> json = Json::parse(result.output);
  EXPECT_TRUE(json.is_ok()) << result.output;
  return json.is_ok() ? *json : Json::object();
}

std::vector<std::string> plan(const std::string& devices, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {"plan", "--model", "gpt2", "--devices", devices};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

void expect_refusal(const std::vector<std::string>& arguments, int code,
                    const std::string& message) {
  CommandResult result = run_command(arguments);
  EXPECT_EQ(result.exit_code, code) << message;
  EXPECT_THAT(result.errors, HasSubstr(message));
  EXPECT_EQ(result.output, "");
}

/// Layers that stages of `key` cover, in order.
std::vector<int64_t> covered(const Json& json, const char* key) {
  std::vector<int64_t> layers;
  for (const Json& range : json.find(key)->items()) {
    for (int64_t layer = range.items()[0].as_integer(); layer <= range.items()[1].as_integer();
         ++layer) {
      layers.push_back(layer);
    }
  }
  return layers;
}

/// A machine of one card of 100 TFLOP/s and a host that holds up nothing; `ops` may be empty.
std::string machine_with(const std::string& ops) {
  return R"({"cards": [{"name": "card", "flop_per_s": 1e14, "memory_bytes": 5e10,
                        "up_bytes_per_s": 1e12, "down_bytes_per_s": 1e12}],
             "ops": [)" +
         ops + R"(], "host": {"work_bytes_per_s": 1e13}})";
}

TEST(PlanCommand, TakesLayersByTheOperationsOfAProfile) {
  TemporaryFolder folder;
  auto step_s = [&](const std::string& ops, const std::string& assumed) {
    std::ofstream(folder.file("box.json")) << machine_with(ops);
    std::vector<std::string> arguments =
        plan("sim:1x" + folder.file("box.json"), {"--dtype", "bf16"});
    CommandResult text = run_command(arguments);
    EXPECT_THAT(text.output, HasSubstr(assumed));
    return answer(arguments).find("predicted")->find("step_s")->as_number();
  };
  double by_flop = step_s("", "layer times are FLOP by rate; nothing was measured");
  // 1e9 FLOP in 100 us are 10 TFLOP/s, 1e6 bytes in 1 us 1 TB/s.
  std::string products, others = R"({"op": "add", "work": 1e6, "us": 1})";
  for (const char* op :
       {"matmul", "attention_forward", "attention_backward", "linear_cross_entropy_forward",
        "linear_cross_entropy_backward_input", "linear_cross_entropy_backward_weight"}) {
    products += std::string(R"({"op": ")") + op + R"(", "work": 1e9, "us": 100}, )";
  }
  double by_ops = step_s(R"({"card": "card", "ops": [)" + products + others + "]}",
                         "has none like embedding_forward");
  EXPECT_GT(by_ops, 8 * by_flop);
  EXPECT_LT(by_ops, 14 * by_flop);
  // Of another card they say nothing.
  EXPECT_DOUBLE_EQ(
      step_s(R"({"card": "other", "ops": [)" + products + others + "]}", "are FLOP by rate"),
      by_flop);
}

TEST(PlanCommand, PrintsTheKeysOfTheContract) {
  Json json = answer(plan("sim:4xrtx4090", {"--explain"}));
  int64_t fused = json.find("fused")->items()[0].as_integer();
  EXPECT_EQ(json.find("fused")->items()[1].as_integer(), 13);
  std::vector<int64_t> forward = covered(json, "forward");
  EXPECT_EQ(static_cast<int64_t>(forward.size()), fused);
  EXPECT_TRUE(std::is_sorted(forward.begin(), forward.end()));
  EXPECT_EQ(static_cast<int64_t>(covered(json, "backward").size()), fused);
  EXPECT_GT(json.find("t_max_s")->as_number(), 0);
  EXPECT_GT(json.find("plan_ms")->as_number(), 0);
  const Json& predicted = *json.find("predicted");
  EXPECT_GT(predicted.find("step_s")->as_number(), 0);
  EXPECT_LT(predicted.find("bubble")->as_number(), 1);
  EXPECT_FALSE(predicted.find("bottleneck")->as_string().empty());
  EXPECT_GT(predicted.find("lanes")->find("compute")->find("busy_fraction")->as_number(), 0);
  EXPECT_GT(json.find("memory")->find("device_bytes")->as_integer(), 0);
  double shares = 0;
  for (const Json& share : json.find("shares")->items()) {
    shares += share.find("share")->as_number();
  }
  EXPECT_NEAR(shares, 1, 1e-9);
  EXPECT_GT(json.find("updates")->find("host_s")->as_number(), 0);
  EXPECT_NE(json.find("explain")->find("roundpipe_rule"), nullptr);
  EXPECT_GE(json.find("assumptions")->items().size(), 3u);
}

TEST(PlanCommand, PrintsEveryAssumedRate) {
  CommandResult result = run_command(plan("cpu:2[memory=2G]"));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("20 GFLOP/s, a guess; give flops="));
  EXPECT_THAT(result.output, HasSubstr("transfers take no time; give h2d= and d2h="));
  EXPECT_THAT(result.output, HasSubstr("host work touches 80 GB/s"));
}

TEST(PlanCommand, NeverPlansMoreThanADeviceHas) {
  for (int64_t mebibytes : {700, 900, 1200, 2000}) {
    std::string devices = "cpu:4[memory=" + std::to_string(mebibytes) + "M,flops=20G]";
    Json json = answer(plan(devices, {"--batch", "4", "--sequence", "256"}));
    EXPECT_LE(json.find("memory")->find("device_bytes")->as_integer(), mebibytes << 20);
  }
}

TEST(PlanCommand, LeavesAHopelessDeviceOutWithAReason) {
  Json json = answer(plan("cpu:2[memory=4G,flops=20G],cpu:1[memory=1M,flops=20G]"));
  const Json& out = json.find("shares")->items()[2];
  EXPECT_EQ(out.find("id")->as_string(), "cpu:2");
  EXPECT_FALSE(out.find("used")->as_bool());
  EXPECT_FALSE(out.find("reason")->as_string().empty());
}

TEST(PlanCommand, LongestSequenceIsTheLeastOfTheTiers) {
  Json json = answer(plan("cpu:2[memory=2G,flops=20G]", {"--max-sequence"}));
  const Json& longest = *json.find("max_sequence");
  int64_t device = longest.find("device")->as_integer();
  EXPECT_GT(device, 0);
  EXPECT_EQ(longest.find("positions")->as_integer(), 1024);
  EXPECT_EQ(longest.find("tokens")->as_integer(),
            std::min({device, longest.find("host")->as_integer(), int64_t{1024}}));
  // It does not depend on the number of devices, and grows with their memory.
  json = answer(plan("cpu:8[memory=2G,flops=20G]", {"--max-sequence"}));
  EXPECT_EQ(json.find("max_sequence")->find("device")->as_integer(), device);
  json = answer(plan("cpu:2[memory=4G,flops=20G]", {"--max-sequence"}));
  EXPECT_GT(json.find("max_sequence")->find("device")->as_integer(), device);
}

/// What a plan says of updates on a host that touches so much a second.
Json updates_of(const std::string& bytes_per_s, std::vector<std::string> more,
                const char* dtype = "bf16") {
  TemporaryFolder folder;
  std::ofstream(folder.file("box.json"))
      << R"({"name": "box", "cards": [{"flop_per_s": 1e14, "memory_bytes": 1e11,
          "up_bytes_per_s": 1e12, "down_bytes_per_s": 1e12}], "host": {"work_bytes_per_s": )"
      << bytes_per_s << "}}";
  more.insert(more.end(), {"--dtype", dtype, "--batch", "16", "--microbatches", "16"});
  Json json = answer(plan("sim:1x" + folder.file("box.json"), more));
  json["updates"]["step_s"] = json.find("predicted")->find("step_s")->as_number();
  return *json.find("updates");
}

// A step whose updates wait for the norm takes, beside computing, what does not fit behind the
// next forward; SlowPacedUpdates holds training to the same.
TEST(PlanCommand, WhatUpdatesExposeIsWhatTheWindowDoesNotHide) {
  for (const char* rounds : {"1", "2"}) {
    for (const char* host : {"8e9", "20e9", "200e9"}) {
      SCOPED_TRACE(std::string(rounds) + " " + host);
      Json gated = updates_of(host, {"--rounds", rounds});
      EXPECT_TRUE(gated.find("waits_for_norm")->as_bool());
      double step = number(gated, "step_s"), free = step - number(gated, "exposed_s");
      double rule = free + std::max(0.0, number(gated, "host_s") - number(gated, "window_s"));
      EXPECT_NEAR(step, rule, 0.05 * rule);

      Json ungated = updates_of(host, {"--rounds", rounds, "--clip-norm", "0"});
      EXPECT_FALSE(ungated.find("waits_for_norm")->as_bool());
      EXPECT_LE(number(ungated, "step_s"), 1.001 * step);
      Json async = updates_of(host, {"--rounds", rounds, "--update", "async"});
      EXPECT_EQ(number(async, "window_s"), number(async, "step_s") - number(async, "exposed_s"));
      EXPECT_LE(number(async, "step_s"), 1.001 * number(ungated, "step_s"));
      Json barrier = updates_of(host, {"--rounds", rounds, "--update", "barrier"});
      EXPECT_EQ(number(barrier, "window_s"), 0);
      EXPECT_GE(number(barrier, "exposed_s"), 0.999 * number(barrier, "host_s"));
    }
  }
  // fp16's loss scale needs the norm without any clipping.
  Json half = updates_of("20e9", {"--clip-norm", "0"}, "fp16");
  EXPECT_TRUE(half.find("waits_for_norm")->as_bool());
}

// Bytes touched in bf16: gradient 2, weight 2 x 4, each moment read and written.
TEST(PlanCommand, OptimizerAndMomentsDecideWhatUpdatesTake) {
  double adamw = number(updates_of("20e9", {}), "host_s");
  struct Row {
    const char *kind, *moments;
    double bytes;
  };
  for (const Row& row : {Row{"adam", "fp32", 26},
                         {"lion", "fp32", 18},
                         {"sgd", "fp32", 18},
                         {"adamw", "bf16", 18},
                         {"adamw", "8bit", 14},
                         {"lion", "bf16", 14}}) {
    SCOPED_TRACE(std::string(row.kind) + " " + row.moments);
    Json updates = updates_of("20e9", {"--optimizer", row.kind, "--moments", row.moments});
    EXPECT_EQ(updates.find("optimizer")->as_string(), row.kind);
    EXPECT_NEAR(number(updates, "host_s"), adamw * row.bytes / 26, 0.01 * adamw);
  }
  CommandResult people = run_command(plan("cpu:2[memory=2G]", {"--optimizer", "lion"}));
  EXPECT_THAT(people.output, HasSubstr("updates: lion with fp32 moments, overlap, after the norm"));
}

/// A machine profile, below a folder that tests share.
std::string profile_file(const std::string& text) {
  std::string path = testing::TempDir() + "plan_test_profile.json";
  std::ofstream(path) << text;
  return path;
}

TEST(PlanCommand, TakesMeasuredRatesForRealDevices) {
  std::string path = profile_file(R"({"name": "box", "cards": [
    {"device": "cpu:0", "flop_per_s": 1e12, "memory_bytes": 1e9, "up_bytes_per_s": 2e9,
     "down_bytes_per_s": 2e9}], "host": {"work_bytes_per_s": 4e9}, "copy_latency_s": 1e-5,
    "measurement": {"when": "then", "machine": {"processor": "another"}}})");
  CommandResult without = run_command(plan("cpu:1[memory=2G]"));
  CommandResult with = run_command(plan("cpu:1[memory=2G]", {"--profile", path}));
  ASSERT_EQ(with.exit_code, 0) << with.errors;
  EXPECT_THAT(with.output, HasSubstr("rates of 'box', measured then"));
  EXPECT_THAT(with.output, HasSubstr("processor was another and is"));
  EXPECT_THAT(with.output, Not(HasSubstr("a guess")));
  EXPECT_THAT(with.output, HasSubstr("host work touches 4 GB/s"));
  EXPECT_THAT(without.output, HasSubstr("a guess"));
  // A device that was not measured keeps its assumptions, which stand there.
  CommandResult two = run_command(plan("cpu:2[memory=2G]", {"--profile", path}));
  ASSERT_EQ(two.exit_code, 0) << two.errors;
  EXPECT_THAT(two.output, HasSubstr("box has no 'cpu:1'"));
  EXPECT_THAT(two.output, HasSubstr("a guess"));
  expect_refusal(plan("sim:1xrtx4090", {"--profile", path}), 1, "leave out --profile");
  // What is called so here is another device: its own numbers count, and why stands there.
  std::string other = profile_file(R"json({"name": "box", "cards": [
    {"device": "cpu:0", "name": "CPU device (paced)", "flop_per_s": 1e12, "memory_bytes": 1e9,
     "up_bytes_per_s": 2e9, "down_bytes_per_s": 2e9}], "host": {"work_bytes_per_s": 4e9}})json");
  Json own = answer(plan("cpu:1[flops=1G]"));
  Json beside = answer(plan("cpu:1[flops=1G]", {"--profile", other}));
  EXPECT_NEAR(beside.find("t_max_s")->as_number() / own.find("t_max_s")->as_number(), 1, 0.01);
  EXPECT_THAT(run_command(plan("cpu:1[flops=1G]", {"--profile", other})).output,
              HasSubstr("cpu:0 is 'CPU device (paced 1 GFLOP/s)', and of 'box' 'CPU device "
                        "(paced)': its rates are not used"));
}

TEST(PlanCommand, RefusesByName) {
  expect_refusal({"plan", "--model", "qwen3-8bb", "--devices", "cpu:2"}, 1,
                 "did you mean 'qwen3-8b'");
  expect_refusal(plan("cpu:2[memory=100M]"), 4, "layer 'head' alone needs");
  expect_refusal(plan("cpu:2", {"--schedule", "1f1b"}), 1, "plans roundpipe and single");
  expect_refusal(plan("cpu:2", {"--schedule", "single"}), 1, "single has one device, not 2");
  expect_refusal(plan("cpu:2", {"--profile", "p.json"}), 1, "p.json");
  expect_refusal(plan("sim:2xrtx4090", {"--profile", profile_file("{}")}), 1, "cards are 0");
  expect_refusal(plan("cpu:2", {"--microbatches", "3"}), 1, "must divide --batch, 16");
  expect_refusal(plan("cpu:2", {"--rounds", "3"}), 1, "must divide --microbatches, 4");
  expect_refusal(plan("cpu:2", {"--sequence", "4096"}), 1, "1024 positions");
  expect_refusal(plan("sim:2xrtx1"), 1, "'rtx1' is no simulated card");
  expect_refusal(plan("sim:2xrtx4090", {"--update", "never"}), 1, "barrier, overlap or async");
  expect_refusal(plan("cpu:2", {"--optimizer", "adamww"}), 1, "did you mean 'adamw'?");
  expect_refusal(plan("cpu:2", {"--moments", "fp8"}), 1, "use fp32, bf16 or 8bit");
  expect_refusal(plan("cpu:2", {"--clip-norm", "-1"}), 1, "--clip-norm is -1");
}

/// The 32B model of RoundPipe's comparison.
std::string large_model(int blocks) {
  std::string text = "{\"layers\": [";
  for (int block = 0; block < blocks; ++block) {
    text += "{\"forward_ms\": 40.56, \"backward_ms\": 91.17},";
  }
  return text +
         "{\"name\": \"head\", \"forward_ms\": 54.93, \"backward_ms\": 108.29, \"recompute_ms\": "
         "0}], \"hop_ms\": 4.0, \"tokens_per_microbatch\": 8192}";
}

class LayerTimesCommand : public testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(folder_.file("times.json")) << text; }
  std::vector<std::string> simulate(const std::string& schedule,
                                    std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"simulate",  "--layer-times",  folder_.file("times.json"),
                                          "--devices", "sim:8xrtx4090",  "--schedule",
                                          schedule,    "--microbatches", "16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  TemporaryFolder folder_;
};

TEST_F(LayerTimesCommand, GivesThePublishedIdleShares) {
  write(large_model(64));
  Json json = answer(simulate("1f1b", {"--update", "barrier"}));
  EXPECT_NEAR(json.find("bubble")->as_number(), 0.349, 0.001);
  double tokens = 16 * 8192 / json.find("step_s")->as_number();
  EXPECT_NEAR(json.find("tokens_per_s")->as_number(), tokens, 1e-6 * tokens);
  json = answer(simulate("interleaved", {"--chunks", "8", "--update", "barrier"}));
  EXPECT_NEAR(json.find("bubble")->as_number(), 0.151, 0.001);
  json = answer(simulate("roundpipe", {"--update", "barrier"}));
  EXPECT_NEAR(json.find("bubble")->as_number(), 0.044, 0.001);
  EXPECT_NEAR(json.find("roundpipe_rule")->find("bubble")->as_number(), 0.093, 0.001);
  EXPECT_EQ(json.find("bottleneck")->as_string(), "compute");
  double busy = json.find("lanes")->find("compute")->find("busy_fraction")->as_number();
  EXPECT_NEAR(busy, 1 - json.find("bubble")->as_number(), 1e-9);
  double asynchronous =
      answer(simulate("roundpipe", {"--update", "async"})).find("bubble")->as_number();
  EXPECT_LT(asynchronous, 0.02);
}

TEST_F(LayerTimesCommand, BadFilesAreRefusedByLayerAndField) {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"layers\": [{\"forward_ms\": 1, \"backward_ms\": 0}]}", "layers[0]: backward_ms is 0"},
      {"{\"layers\": [{\"forward_ms\": -1, \"backward_ms\": 2}]}", "layers[0]: forward_ms is -1"},
      {"{\"layers\": [{\"forward_ms\": \"x\", \"backward_ms\": 2}]}", "forward_ms is \"x\""},
      {"{\"layers\": [{\"forward_ms\": NaN, \"backward_ms\": 2}]}", "times.json"},
      {"{\"layers\": [{\"backward_ms\": 2}]}", "'forward_ms' is missing"},
      {"{\"layers\": [{\"forward_ms\": 1, \"backwards_ms\": 2}]}", "did you mean 'backward_ms'?"},
      {"{\"layers\": []}", "at least one layer"},
      {"{\"layer\": []}", "did you mean 'layers'?"},
      {"[", "times.json"},
  };
  for (const auto& [text, message] : cases) {
    write(text);
    expect_refusal(simulate("roundpipe"), 1, message);
  }
}

TEST_F(LayerTimesCommand, OtherRefusals) {
  write(large_model(4));
  expect_refusal(simulate("1f1b"), 1, "5 layers cannot be cut into 8 stages");
  expect_refusal(simulate("slidedp", {"--round", "8"}), 1, "has no parameter round");
  expect_refusal(simulate("roundpipe", {"--round", "5"}), 1, "must divide --microbatches, 16");
  expect_refusal(simulate("roundpipe", {"--forward-stages", "3"}), 1,
                 "follow from the layer times");
  expect_refusal(simulate("roundpipe", {"--stages", "3"}), 1, "--layer-times goes with");
  expect_refusal(simulate("single"), 1, "single has one device, not 8");
  expect_refusal(simulate("gpipe", {"--update", "async"}), 1, "which is roundpipe's");
  expect_refusal({"simulate", "--schedule", "1f1b", "--stages", "2", "--microbatches", "2",
                  "--devices", "cpu:2"},
                 1, "--devices goes with --layer-times or --model");
}

// The question is how long a sequence may be, so one that does not fit is no answer.
TEST(PlanCommand, MaxSequenceAnswersWhereTheDefaultDoesNotFit) {
  std::vector<std::string> question = plan("cpu:1[memory=700M]", {"--max-sequence"});
  Json json = answer(question);
  int64_t tokens = json.find("max_sequence")->find("tokens")->as_integer();
  EXPECT_GT(tokens, 8);
  EXPECT_LT(tokens, 1024);
  EXPECT_EQ(
      run_command(plan("cpu:1[memory=700M]", {"--sequence", std::to_string(tokens)})).exit_code, 0);
  EXPECT_EQ(
      run_command(plan("cpu:1[memory=700M]", {"--sequence", std::to_string(tokens + 1)})).exit_code,
      4);
  // A device that holds less is left out, so the largest decides.
  json = answer(plan("cpu:1[memory=600M],cpu:1[memory=700M]", {"--max-sequence"}));
  EXPECT_EQ(json.find("max_sequence")->find("tokens")->as_integer(), tokens);
}

TEST(PlanCommand, NumbersBeyondTheirRangeAreRefusedByName) {
  expect_refusal(plan("cpu:1[flops=1G,speed=1e-300]"), 1, "option 'speed' holds '1e-300'");
  expect_refusal(plan("cpu:1[flops=0.001]"), 1, "option 'flops' is 0.001");
  expect_refusal(plan("cpu:2", {"--sequence", "0"}), 1, "--sequence is 0");
  expect_refusal(plan("cpu:2", {"--host-memory", "nan"}), 1, "--host-memory");
}

// Idle shares are those of the devices that take part.
TEST(PlanCommand, ALeftOutDeviceIsNotCountedAsIdle) {
  Json json = answer(plan("cpu:1[flops=1G],cpu:1[flops=1G,memory=1K]", {"--update", "barrier"}));
  EXPECT_LT(json.find("predicted")->find("bubble")->as_number(), 0.05);
}

}  // namespace
}  // namespace stagecoach
