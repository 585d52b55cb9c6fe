// Planning and simulating models that are larger than any machine at hand.
#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/bytes.h"
#include "core/file.h"
#include "tests/core/temporary_folder.h"
#include "tests/tools/command_runner.h"

namespace stagecoach {
namespace {

using ::testing::HasSubstr;

/// A command with --json behind it.
CommandResult run_json(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  return run_command(arguments);
}

Json answer(const std::vector<std::string>& arguments) {
  CommandResult result = run_json(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  Result<Json> json = Json::parse(result.output);
  EXPECT_TRUE(json.is_ok()) << result.output;
  return json.is_ok() ? *json : Json::object();
}

std::vector<std::string> command(const std::string& name, const std::string& model,
                                 const std::string& devices, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {name, "--model", model, "--devices", devices};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

double number(const Json& json, const char* table, const char* key) {
  const Json* value = json.find(table)->find(key);
  EXPECT_NE(value, nullptr) << table << "." << key;
  return value == nullptr ? 0 : value->as_number();
}

void expect_refusal(const std::vector<std::string>& arguments, int code,
                    const std::string& message) {
  CommandResult result = run_command(arguments);
  EXPECT_EQ(result.exit_code, code) << message;
  EXPECT_THAT(result.errors, HasSubstr(message));
  EXPECT_EQ(result.output, "");
}

TEST(SlowModelShapes, EveryPresetIsPlannedAndVerifiedByTheExecutor) {
  for (const char* model :
       {"gpt2", "gpt2-medium", "llama3.1-8b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b",
        "qwen3-32b", "qwen3-235b-a22b", "gpt-oss-20b"}) {
    SCOPED_TRACE(model);
    Json json = answer(command("plan", model, "sim:4xh200",
                               {"--batch", "32", "--microbatches", "8", "--max-sequence"}));
    double predicted = number(json, "predicted", "isolated_step_s");
    EXPECT_GT(predicted, 0);
    bool is_verified = json.find("predicted")->find("verified_step_s")->is_number();
    ASSERT_TRUE(is_verified);
    EXPECT_NEAR(number(json, "predicted", "verified_step_s"), predicted, 0.05 * predicted);
    double regions = 0;
    for (const char* region :
         {"parameter_bytes", "gradient_bytes", "boundary_bytes", "activation_bytes"}) {
      regions += number(json, "memory", region);
    }
    EXPECT_EQ(regions, number(json, "memory", "device_bytes"));
    EXPECT_GT(number(json, "memory", "host_pinned_bytes"),
              number(json, "memory", "host_activation_bytes"));
    EXPECT_GT(number(json, "max_sequence", "device"), 1024);
  }
}

// RoundPipe's first headline: more devices do not change what fits, since each holds two stages.
TEST(SlowModelShapes, TheLongestSequenceDoesNotDependOnTheNumberOfDevices) {
  std::string longest;
  for (int devices = 1; devices <= 8; ++devices) {
    SCOPED_TRACE(devices);
    std::string spec = "sim:" + std::to_string(devices) + "xrtx4090";
    auto plan = [&](const std::string& sequence) {
      return command(
          "plan", "qwen3-8b", spec,
          {"--batch", "8", "--microbatches", "8", "--sequence", sequence, "--max-sequence"});
    };
    Json json = answer(plan("1024"));
    std::string found = std::to_string(json.find("max_sequence")->find("device")->as_integer());
    if (longest.empty()) longest = found;
    EXPECT_EQ(found, longest);
    // It is one, on any number of devices: it can be planned, and a token more cannot.
    EXPECT_EQ(run_json(plan(longest)).exit_code, 0);
    CommandResult refused = run_json(plan(std::to_string(std::stoll(longest) + 1)));
    EXPECT_EQ(refused.exit_code, 4);
    EXPECT_THAT(refused.errors, HasSubstr("layer 'layers.0' alone needs"));
  }
}

// RoundPipe's second headline: 235 billion parameters with adapters of rank 32 on all matrices, on
// eight cards of 24 GB and a host of 800 GB, at 31K tokens.
TEST(SlowModelShapes, Qwen235BWithAdaptersIsPlannedOnEightCardsOf24GBAt31KTokens) {
  Json json =
      answer(command("plan", "qwen3-235b-a22b", "sim:8xrtx4090[memory=24G]",
                     {"--lora-rank", "32", "--lora-experts", "--sequence", "31744", "--batch", "8",
                      "--microbatches", "8", "--host-memory", "745G", "--max-sequence"}));
  // 235,093,634,560 and two adapters each for 94 times attention, router and 128 experts.
  int64_t adapters =
      94 * int64_t{32} *
      (3 * 4096 + 8192 + 2 * 512 + 8192 + 4096 + (4096 + 128) + 128 * 3 * (4096 + 1536));
  EXPECT_EQ(json.find("trained_parameters")->as_integer(), adapters);
  EXPECT_EQ(json.find("parameters")->as_integer(), 235'093'634'560 + adapters);
  EXPECT_LE(number(json, "memory", "device_bytes"), 24.0 * kGiB);
  // Every byte of 94 layers' frozen experts is there once, at two bytes a parameter.
  EXPECT_NEAR(number(json, "memory", "host_frozen_bytes"), 2 * 235'093'634'560.0, 1e6);
  double host =
      number(json, "memory", "host_state_bytes") + number(json, "memory", "host_activation_bytes");
  EXPECT_LE(host, 745.0 * kGiB);
  EXPECT_GE(number(json, "max_sequence", "device"), 31744);
  EXPECT_GE(number(json, "max_sequence", "host"), 31744);
  double predicted = number(json, "predicted", "isolated_step_s");
  EXPECT_NEAR(number(json, "predicted", "verified_step_s"), predicted, 0.02 * predicted);
  EXPECT_GT(number(json, "predicted", "step_s"), 1);
}

TEST(SlowModelShapes, OneIterationOf235BillionParametersRunsInLittleMemory) {
  CommandResult result =
      run_json(command("simulate", "qwen3-235b-a22b", "sim:8xrtx4090",
                       {"--schedule", "roundpipe", "--microbatches", "16", "--lora-rank", "32",
                        "--lora-experts", "--sequence", "2048"}));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_LT(result.peak_bytes, 500'000'000);
  EXPECT_GT(result.peak_bytes, 1'000'000);
  RecordProperty("peak_bytes", std::to_string(result.peak_bytes));
  RecordProperty("seconds", std::to_string(result.seconds));
  Json json = *Json::parse(result.output);
  size_t actions = 0;
  for (const Json& device : json.find("order")->items()) actions += device.items().size();
  const Json& plan = *json.find("plan");
  size_t stages = plan.find("forward")->items().size() + plan.find("backward")->items().size() + 1;
  EXPECT_EQ(actions, 16 * stages);
  EXPECT_NEAR(json.find("makespan")->as_number(), 1e3 * json.find("step_s")->as_number(), 1);
  EXPECT_NEAR(json.find("bubble_makespan")->as_number(), json.find("bubble")->as_number(), 1e-6);
  double tokens = 16 * 2048 / json.find("step_s")->as_number();
  EXPECT_NEAR(json.find("tokens_per_s")->as_number(), tokens, 1e-6 * tokens);
  EXPECT_TRUE(json.find("closed_form")->is_null());
  EXPECT_GT(json.find("predicted_steady_step_s")->as_number(), 0);
  EXPECT_FALSE(json.find("bottleneck")->as_string().empty());
  EXPECT_GE(json.find("idle")->find("fill")->as_number(), 0);
  for (const char* lane :
       {"compute", "parameters_up", "activations_up", "activations_down", "gradients_down"}) {
    double busy = json.find("lanes")->find(lane)->find("busy_fraction")->as_number();
    EXPECT_GT(busy, 0) << lane;
    EXPECT_LE(busy, 1) << lane;
  }
  // What is planned is what the executor takes, and it is less than a card has.
  ASSERT_EQ(json.find("device_peak_bytes")->items().size(), 8u);
  for (const Json& peak : json.find("device_peak_bytes")->items()) {
    EXPECT_LE(peak.as_number(), number(json, "memory", "device_bytes"));
    EXPECT_GE(peak.as_number(), 0.9 * number(json, "memory", "device_bytes"));
  }
  // Forward and backward carry every parameter up once; adapters alone come down.
  EXPECT_GT(json.find("bytes_up")->as_number(), 2 * 2 * 235e9);
  EXPECT_LT(json.find("bytes_down")->as_number(), 0.1 * json.find("bytes_up")->as_number());
}

TEST(ModelShapes, UnequalAndPacedDevicesAreSimulatedToo) {
  TemporaryFolder folder;
  std::string trace = folder.file("trace.json");
  Json json = answer(command("simulate", "gpt2",
                             "cpu:2[flops=20G,h2d=2G,d2h=2G],cpu:1[flops=5G,h2d=2G,d2h=2G]",
                             {"--schedule", "roundpipe", "--microbatches", "8", "--round", "4",
                              "--sequence", "128", "--trace", trace}));
  double step = json.find("step_s")->as_number();
  EXPECT_NEAR(json.find("predicted_step_s")->as_number(), step, 0.02 * step);
  EXPECT_THAT(*read_file(trace), HasSubstr("parameter_up"));
}

// A small device takes the stages it can hold, and no more memory than those need.
TEST(ModelShapes, DevicesOfUnequalMemoryAreSimulatedWithWhatEachHolds) {
  Json json =
      answer(command("simulate", "gpt2", "cpu:1[flops=20G,memory=4G],cpu:1[flops=20G,memory=300M]",
                     {"--schedule", "roundpipe", "--microbatches", "8"}));
  const std::vector<Json>& peaks = json.find("device_peak_bytes")->items();
  ASSERT_EQ(peaks.size(), 2u);
  EXPECT_LE(peaks[1].as_number(), 300.0 * kMiB);
  EXPECT_GT(peaks[0].as_number(), 300.0 * kMiB);
}

TEST(ModelShapes, APlanTooLongToVerifySaysSo) {
  Json json = answer(command("plan", "gpt2", "sim:2xrtx4090",
                             {"--batch", "50000", "--microbatches", "50000", "--sequence", "8"}));
  EXPECT_TRUE(json.find("predicted")->find("verified_step_s")->is_null());
}

TEST(ModelShapes, FewTokensReachFewExpertsButAllTravel) {
  auto up = [](const char* tokens) {
    CommandResult result = run_command(command(
        "plan", "qwen3-235b-a22b", "sim:8xrtx4090",
        {"--lora-rank", "32", "--sequence", tokens, "--batch", "8", "--microbatches", "8"}));
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.output;
  };
  EXPECT_THAT(up("4"), HasSubstr("4 tokens of a micro-batch reach at most 32, but all"));
  EXPECT_THAT(up("64"), HasSubstr("64 tokens of a micro-batch reach at most 128, but all"));
}

TEST(ModelShapes, ConfigFilesArePlannedAndRefusedByField) {
  TemporaryFolder folder;
  std::string path = folder.file("config.json");
  auto write = [&](const std::string& heads) {
    std::ofstream(path) << "{\"model_type\": \"llama\", \"vocab_size\": 32000, \"hidden_size\": "
                           "512, \"intermediate_size\": 1024, \"num_hidden_layers\": 4, "
                           "\"num_attention_heads\": "
                        << heads << ", \"max_position_embeddings\": 2048}";
  };
  write("8");
  CommandResult result =
      run_command(command("plan", path, "sim:2xrtx4090", {"--sequence", "4096"}));
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.output, HasSubstr("config.json does not say: num_key_value_heads = 8"));
  EXPECT_THAT(result.output, HasSubstr("4096 tokens are more than the model's 2048 positions"));
  write("7");
  expect_refusal(command("plan", path, "sim:2xrtx4090"), 1,
                 path + ": hidden_size is 512, expected a multiple of num_attention_heads, 7");
}

TEST(ModelShapes, Refusals) {
  expect_refusal(command("plan", "qwen3-8b", "sim:8xrtx4090", {"--host-memory", "64G"}), 4,
                 "of host memory");
  expect_refusal(command("plan", "qwen3-8b", "sim:8xrtx4090", {"--lora-rank", "-1"}), 1,
                 "--lora-rank is -1; it must be at least 1");
  expect_refusal(command("plan", "qwen3-8b", "sim:8xrtx4090", {"--sequence", "-1"}), 1,
                 "--sequence is -1");
  expect_refusal(command("simulate", "qwen3-8b", "sim:8xrtx4090",
                         {"--schedule", "1f1b", "--microbatches", "8"}),
                 1, "simulates models with roundpipe and single");
  expect_refusal(command("simulate", "qwen3-8b", "sim:8xrtx4090",
                         {"--schedule", "roundpipe", "--microbatches", "8", "--round", "3"}),
                 1, "--round is 3; it must divide --microbatches, 8");
  expect_refusal(command("simulate", "qwen3-8b", "sim:8xrtx4090", {"--microbatches", "8"}), 1,
                 "--model goes with");
  expect_refusal(
      {"simulate", "--schedule", "1f1b", "--stages", "2", "--microbatches", "2", "--sequence", "5"},
      1, "go with --model");
  expect_refusal(command("simulate", "gpt2", "sim:2xrtx4090",
                         {"--schedule", "roundpipe", "--microbatches", "50000", "--sequence", "8"}),
                 4, "actions is not run in virtual time");
  TemporaryFolder folder;
  std::ofstream(folder.file("train.txt")) << "some text to read";
  for (const char* name : {"train", "eval"}) {
    expect_refusal(command(name, "qwen3-8b", "cpu:1", {"--data", folder.file("train.txt")}), 1,
                   "model 'qwen3-8b' has no weights");
  }
}

}  // namespace
}  // namespace stagecoach
